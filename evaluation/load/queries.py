"""What is asked: the questions of a collection, or a mix in English and Chinese for the demo's index."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from contracts.errors import InvalidInput
from evaluation.datasets import QUERIES

# Each in English and in Chinese; the demo indexes the Python standard library.
_SUBJECTS = (
    ("run a command and stop it after a timeout", "限时运行一个命令"),
    ("read a csv file with named columns", "读取带列名的 csv 文件"),
    ("run functions in a pool of processes", "在进程池里运行函数"),
    ("find the most common items of a list", "找出列表中最常见的元素"),
    ("create a temporary folder", "创建临时文件夹"),
    ("parse command line arguments", "解析命令行参数"),
    ("compress a file with gzip", "用 gzip 压缩文件"),
    ("send an email over smtp", "通过 smtp 发送邮件"),
    ("parse an iso date", "解析 iso 日期"),
    ("cache the results of a function", "缓存函数的结果"),
    ("compare two sequences line by line", "逐行比较两个序列"),
    ("hash a password", "计算密码的哈希值"),
    ("walk a directory tree", "遍历目录树"),
    ("serialise an object to json", "把对象序列化成 json"),
    ("connect to a sqlite database", "连接 sqlite 数据库"),
    ("download a web page", "下载网页"),
    ("match text with a regular expression", "用正则表达式匹配文本"),
    ("wait for several coroutines at once", "同时等待多个协程"),
    ("log messages to a rotating file", "把日志写进轮换的文件"),
    ("draw random numbers", "生成随机数"),
    ("round decimal numbers exactly", "精确舍入小数"),
    ("read an ini configuration", "读取 ini 配置"),
    ("encode bytes as base64", "把字节编码成 base64"),
    ("measure the time of a code snippet", "测量一段代码的运行时间"),
)
# Words that the planner tells kinds of context by are among them.
_ENGLISH = ("{}", "how to {}, step by step", "documentation: {}", "which function helps to {}?", "an example: {}")
_CHINESE = ("{}", "怎么{}", "{}的步骤", "{}的文档", "{}用哪个函数")

BUILT_IN: tuple[str, ...] = tuple(
    pattern.format(subject)
    for pair in _SUBJECTS
    for subject, patterns in zip(pair, (_ENGLISH, _CHINESE), strict=True)
    for pattern in patterns
)


class _Line(msgspec.Struct):
    text: str


def read(path: Path) -> tuple[str, ...]:
    """The queries of a collection.

    Args:
        path: Its folder, or a file of JSON lines with ``text`` in each.

    Raises:
        InvalidInput: The file can't be read, or holds no queries.
    """
    file = path / QUERIES if path.is_dir() else path
    remedy = f'Name a folder with {QUERIES}, or a file of lines such as {{"text": "…"}}.'
    try:
        texts = tuple(line.text for line in msgspec.json.Decoder(_Line).decode_lines(file.read_bytes()))
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{file} can't be read: {error}.", field="queries", remedy=remedy) from None
    if not texts:
        raise InvalidInput(f"{file} holds no queries.", field="queries", remedy=remedy)
    return texts


def mixed(texts: Sequence[str], seed: int) -> Iterator[str]:
    """The queries in random order, without end; none comes again before all have come."""
    shuffle = random.Random(seed)  # noqa: S311 - an order, no secret
    while True:
        yield from shuffle.sample(texts, len(texts))
