"""Text analysis, the same for records and queries and for every backend (design decision 8).

What becomes of a text, after NFKC:

* English words: lower-cased, accents folded, Porter2 stems, without stop words (question words are among them);
* CJK runs: the words of jieba's search mode, and besides them all pairs of neighbouring characters;
* codes, versions and names in code (``RET-4001``, ``v1.2.3``, ``run_in_executor``, ``RayService``,
  ``concurrent.futures.ProcessPoolExecutor``): whole, and split at their joints and humps.
"""

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import rjieba
import Stemmer

_STOP = """
    a about above after again against all am an and any are as at be because been before being below between both but
    by can could did do does doing down during each few for from further had has have having he her here hers herself
    him himself his how i if in into is it its itself just me more most my myself no nor not now of off on once only or
    other our ours ourselves out over own same she should so some such than that the their theirs them themselves then
    there these they this those through to too under until up upon us very was we were what when where which while who
    whom whose why will with would you your yours yourself yourselves
    aren't can't couldn't didn't doesn't don't hadn't hasn't haven't he'd he'll he's here's how's i'd i'll i'm i've
    isn't it's let's mustn't shan't she'd she'll she's shouldn't that's there's they'd they'll they're they've wasn't
    we'd we'll we're we've weren't what's when's where's who's why's won't wouldn't you'd you'll you're you've
    什么 什么样 什么时候 时候 干什么 为什么 谁 几 几个 多少 多久 多长 多大 多长时间 怎么 怎么样 怎样 如何 是否
    何 何时 何处 何种 哪 哪一 哪一个 哪一年 哪一位 哪个 哪些 哪里 哪儿 哪位 哪年 哪种 哪家 哪支 哪项 哪条 哪部
    哪些地方 叫 叫做 请问 吗 呢
"""
STOP_WORDS = frozenset(_STOP.split())

# Han, kana and hangul: scripts written without spaces, or cut best by pairs.
_CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
_PIECE = rf"[^\W_{_CJK}]+"
_CHUNK = re.compile(rf"(?P<cjk>[{_CJK}]+)|{_PIECE}(?:(?:[.'-]|_+){_PIECE})*")
# From the loosest joint to the tightest: a chunk is cut at the first kind it has, its parts further.
_JOINTS = tuple(
    map(re.compile, (r"\.", r"[-_]+", r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", r"(?<=\d)(?=\D)|(?<=\D)(?=\d)"))
)
_DECIMAL = re.compile(r"\d+\.\d+")
_HYPHENATED = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+")
_LONGEST = 255  # Longer chunks are data (base64, keys), not words.
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_stem = Stemmer.Stemmer("english", 0).stemWord


class Analysis(NamedTuple):
    """The terms of a text in order, repeated as often as they occur; none holds white space.

    Args:
        words: Stems, codes, names and Chinese words.
        bigrams: Pairs of neighbouring CJK characters; empty for a text without any.
    """

    words: list[str]
    bigrams: list[str]


class Countable(NamedTuple):
    """The terms of a text, kept so that one search of a string counts a term.

    Args:
        padded: The terms, each between blanks of its own.
        length: How many they are.
    """

    padded: str
    length: int

    @classmethod
    def of(cls, joined: str) -> "Countable":
        """Of terms joined by white space."""
        terms = joined.split()
        return cls(f" {'  '.join(terms)} ", len(terms))


def analyze(text: str) -> Analysis:
    """Cut a text, of any length, into the terms that keyword recall and its scores are about."""
    words: list[str] = []
    bigrams: list[str] = []
    for match in _CHUNK.finditer(_THOUSANDS.sub("", unicodedata.normalize("NFKC", text).replace("’", "'"))):
        chunk = match[0]
        if match["cjk"]:
            words += [word for word in rjieba.cut_for_search(chunk) if word not in STOP_WORDS]
            bigrams += map("".join, pairwise(chunk))
        elif len(chunk) <= _LONGEST:
            words += _terms(chunk)
    return Analysis(words, bigrams)


@lru_cache(maxsize=1 << 16)
def _terms(chunk: str) -> tuple[str, ...]:
    """A chunk whole and in parts; a decimal number only whole, hyphenated prose only in parts."""
    if _DECIMAL.fullmatch(chunk):
        return (chunk,)
    for joint in _JOINTS:
        parts = joint.split(chunk)
        if len(parts) > 1:
            whole = () if _HYPHENATED.fullmatch(chunk) else _term(chunk)
            # Single characters left over by a cut (U.S, v1.2, x-ray) say nothing by themselves.
            return whole + tuple(term for part in parts if len(part) > 1 for term in _terms(part))
    return _term(chunk)


def _term(chunk: str) -> tuple[str, ...]:
    term = chunk.lower()
    if not term.isascii():
        term = "".join(c for c in unicodedata.normalize("NFKD", term) if not unicodedata.combining(c))
    return () if term in STOP_WORDS else (_stem(term),)
