"""Words and vectors that synthetic records are made of.

* Words follow Zipf's law with its head cut off, as in texts without stop words; half English-like, half Chinese.
* Vectors lie around their topic's centre, mostly within a few directions that all topics share, as embeddings do.
"""

from functools import cache
from itertools import product
from math import isqrt
from typing import NamedTuple

import numpy as np
import rjieba
from numpy.typing import NDArray

from contracts.ports import Vectors
from index.rows import unit

# Words of each language.
VOCABULARY = 14_000
# How far vectors are from their centre of length 1, and questions from their record.
SPREAD, STRAY = 0.8, 0.5
# Share of words of a text's other language.
_FOREIGN = 0.1
# Ranks that stop words would have taken.
_HEAD = 30
_DIRECTIONS, _NOISE = 32, 0.3
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
_CHARACTERS = (
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所"
    "民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本去把性好应开它合还因由其些然前外天政四日"
    "那社义事平形相全表间样与关各重新线内数正心反你明看原又么利比或但质气第向道命此变条只没结解问意建月公无系军很情者最立代想"
    "已通并提直题党程展五果料象员革位入常文总次品式活设及管特件长求老头基资边流路级少图山统接知较将组见计别她手角期根论运农指"
    "几九区强放决西被干做必战先回则任取据处队南给色光门即保治北造百规热领七海口东导器压志世金增争济阶油思术极交受联什认六共权"
    "收证改清己美再采转更单风切打白教速花带安场身车例真务具万每目至达走积示议声报斗完类八离华名确才科张信马节话米整空元况今集"
    "温传土许步群广石记需段研界拉林律叫且究观越织装影算低持音众书布复容儿须际商非验连断深难近矿千周委素技备半办青省列习响约支"
    "般史感劳便团往酸历市克何除消构府称太准精值号率族维划选标写存候毛亲快效斯院查江型眼王按格养易置派层片始却专状育厂京识适属"
)


class Space(NamedTuple):
    """Where vectors lie.

    Args:
        seed: The same seed makes the same topics.
        records: About how many there will be; there are about as many topics as records in each.
        dimensions: Of the vectors.
    """

    seed: int
    records: int
    dimensions: int

    def topics(self) -> Vectors:
        """Centres, at least 8, one a row, each of length 1."""
        return _topics(self)

    def steps(self, draw: np.random.Generator, count: int, length: float) -> Vectors:
        """Steps of about a length along the common directions, and of a little in any; one a row."""
        common = _directions(self.seed, self.dimensions)
        along = draw.standard_normal((count, _DIRECTIONS), np.float32) @ common * (length / _DIRECTIONS**0.5)
        noise = draw.standard_normal((count, self.dimensions), np.float32) * (_NOISE / self.dimensions**0.5)
        return np.asarray(along + noise, np.float32)


def zipf(count: int, head: int) -> NDArray[np.float64]:
    """Probabilities by rank (Zipf–Mandelbrot with exponent 1)."""
    weights = 1 / np.arange(head + 1, head + count + 1)
    return np.asarray(weights / weights.sum())


def words(draw: np.random.Generator, chinese: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Words of texts, for :func:`text`; a tenth of them are of the other language.

    Args:
        draw: Draws them.
        chinese: Whether each text is mostly Chinese, shape (texts, 1); else it is mostly English.
        count: Words a text.

    Returns:
        Shape (texts, count).
    """
    ranks = draw.choice(VOCABULARY, (len(chinese), count), p=_frequencies())
    foreign = draw.random(ranks.shape) < _FOREIGN
    return np.asarray(ranks + VOCABULARY * (chinese ^ foreign))


def text(ranks: NDArray[np.int64]) -> str:
    """Some of :func:`words` in a row, blanks between them as their languages have it."""
    return "".join(map(_vocabulary().__getitem__, ranks)).strip()


@cache
def _frequencies() -> NDArray[np.float64]:
    return zipf(VOCABULARY, _HEAD)


@cache
def _topics(space: Space) -> Vectors:
    draw = np.random.default_rng((space.seed, space.records, space.dimensions))
    return unit(draw.standard_normal((max(8, isqrt(space.records)), space.dimensions), np.float32))


@cache
def _directions(seed: int, dimensions: int) -> Vectors:
    draw = np.random.default_rng((seed, dimensions))
    return unit(draw.standard_normal((_DIRECTIONS, dimensions), np.float32))


@cache
def _vocabulary() -> list[str]:
    """English-like words, each with a space after it, then Chinese ones; both most frequent first."""
    draw = np.random.default_rng(0)
    syllables = ["".join(parts) for parts in product(_CONSONANTS, _VOWELS)]
    english = ["".join(parts) + " " for parts in product(syllables, repeat=3)]
    pairs = ["".join(parts) for parts in product(_CHARACTERS, repeat=2)]
    # Of all pairs of characters those that jieba's dictionary has.
    chinese = [pair for pair in pairs if len(rjieba.cut(pair, False)) == 1]
    return [str(word) for each in (english, chinese) for word in draw.permutation(each)[:VOCABULARY]]
