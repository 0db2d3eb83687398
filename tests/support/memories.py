"""A small tree of nodes in Chinese and English, of two tenants, for tests that go through the whole graph."""

from collections.abc import Iterator
from dataclasses import dataclass

from contracts.hits import Relation
from contracts.query import ContextType
from contracts.records import Document, Node
from contracts.uri import join, parent_of

# (path under the space, context type, category, abstract, overview, content)
_Row = tuple[str, ContextType, str, str, str, str]

SHARED: tuple[_Row, ...] = (
    ("guide", "resource", "document", "Operations guide of the search service", "Chapters on setup and care.", ""),
    ("guide/install", "resource", "section", "How to install the service", "Packages and first start.", "pip install"),
    (
        "guide/backup",
        "resource",
        "section",
        "Backup and restore of the index",
        "Stop writers, copy, start.",
        "rsync -a",
    ),
    ("guide/upgrade", "resource", "section", "Upgrade to a new version", "Read the notes first.", "make upgrade"),
    ("手册", "resource", "document", "检索服务运维手册", "安装、备份与升级。", ""),
    ("手册/安装", "resource", "section", "安装检索服务的资料", "需要的软件包。", "执行安装命令"),
    ("手册/备份", "resource", "section", "索引备份与恢复规范", "先停写入再复制。", "备份脚本"),
    ("python", "skill", "procedure", "Running programs from Python", "The subprocess module.", ""),
    (
        "python/run",
        "skill",
        "command",
        "Run a command and wait for it, with a timeout",
        "run(args, timeout)",
        "def run(): ...",
    ),
    ("python/popen", "skill", "command", "Start a command without waiting", "Popen(args)", "class Popen: ..."),
    ("python/kill", "skill", "command", "Stop a child process", "kill()", "API_TOKEN = 'sk-abcdefghijklmnopqrstuvwx'"),
    ("流程", "skill", "procedure", "发布流程", "从评审到上线。", ""),
    ("流程/评审", "skill", "procedure", "代码评审的步骤", "两人评审。", "先自查再提交"),
    ("流程/上线", "skill", "procedure", "上线部署的步骤和命令", "灰度发布。", "kubectl rollout"),
)
ALICE: tuple[_Row, ...] = (
    (
        "profile",
        "memory",
        "profile",
        "Background of Alice: backend engineer in Shanghai",
        "Career so far.",
        "Born 1990.",
    ),
    ("profile/food", "memory", "preference", "Alice prefers spicy noodles", "Food preferences.", "No peanuts."),
    ("profile/coffee", "memory", "preference", "Alice 的偏好：喜欢手冲咖啡", "咖啡偏好。", "不加糖。"),
    ("profile/trip", "memory", "event", "Alice remembers a trip to Kyoto", "Spring trip.", "Temples and gardens."),
    ("profile/身份", "memory", "profile", "身份背景：后端工程师", "工作经历。", "十年经验。"),
)
BOB: tuple[_Row, ...] = (
    ("profile", "memory", "profile", "Background of Bob: designer in Berlin", "Career so far.", "Born 1985."),
    ("profile/food", "memory", "preference", "Bob prefers mild noodles", "Food preferences.", "Allergic to fish."),
)
RIVAL: tuple[_Row, ...] = (
    ("guide", "resource", "document", "Operations guide of the rival's search service", "Their chapters.", ""),
    ("guide/backup", "resource", "section", "Backup and restore secrets of the rival", "Their way.", "rival content"),
    ("python/run", "skill", "command", "Run a command with the rival's timeout", "rival run", "rival code"),
)

TENANTS: dict[str, dict[str, tuple[_Row, ...]]] = {
    "acme": {"shared": SHARED, "user:alice": ALICE, "user:bob": BOB},
    "rival": {"shared": RIVAL},
}


@dataclass(frozen=True)
class Memories:
    """The nodes of one tenant as an ingest source: a document a space."""

    account_id: str
    source_id: str = "memories"

    def documents(self) -> Iterator[Document]:
        """One document a space."""
        for space, rows in TENANTS[self.account_id].items():
            nodes = tuple(_node(space, row, rows) for row in rows)
            yield Document(space, f"{len(nodes)}", nodes)


def uri(space: str, path: str) -> str:
    """The URI of a node of the corpus."""
    result = f"strata://{space}"
    for segment in path.split("/"):
        result = join(result, segment)
    return result


def _node(space: str, row: _Row, rows: tuple[_Row, ...]) -> Node:
    path, context_type, category, abstract, overview, content = row
    own = uri(space, path)
    parent = parent_of(own) if "/" in path else ""
    children = tuple(Relation(uri(space, other[0]), "child", 0.5) for other in rows if other[0].startswith(f"{path}/"))
    private = (
        (Relation(uri("user:bob", "profile"), "mentions", 0.9),) if path == "profile" and space != "user:bob" else ()
    )
    return Node(
        uri=own,
        parent_uri=parent,
        name=path.rsplit("/", 1)[-1],
        kind="document" if not parent else "section",
        context_type=context_type,
        category=category,
        abstract=abstract,
        overview=overview,
        content=content,
        relations=children + private,
        has_children=bool(children),
        updated_at=1_700_000_000_000,
    )
