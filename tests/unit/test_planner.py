"""The planner's rules (C10)."""

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.stages import Plan, PlannerHints, PlanRequest, SessionArchive
from stages.planner import Planner, PlannerConfig, three_queries

CTX = RequestContext("acme", "user", "user:ann")


async def plan(query: str, config: PlannerConfig | None = None, **fields: object) -> Plan:
    request = PlanRequest(query, 10, **fields)  # type: ignore[arg-type]
    return await Planner(config or PlannerConfig())(CTX, Deadline.after(1), request)


def types(plan: Plan) -> list[str]:
    return [query.context_type for query in plan.queries]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("我的偏好是什么", ["memory"]),
        ("项目背景回顾", ["memory"]),
        ("部署怎么做", ["skill"]),
        ("重启服务的命令", ["skill"]),
        ("接口文档在哪里", ["resource"]),
        ("编码规范链接", ["resource"]),
        ("what are my preferences", ["memory"]),
        ("How to roll back a release", ["skill"]),
        ("the docs of the billing API", ["resource"]),
    ],
)
async def test_words_of_one_intent_give_one_typed_query(query: str, expected: list[str]) -> None:
    planned = await plan(query)
    assert types(planned) == expected
    assert not planned.unsure


async def test_several_intents_split_in_priority_memory_skill_resource() -> None:
    planned = await plan("按照文档里的步骤，结合我的偏好")
    assert types(planned) == ["memory", "skill", "resource"]
    assert not planned.unsure
    assert types(await plan("文档里的流程")) == ["skill", "resource"]


async def test_an_unclassifiable_query_degrades_to_three_queries_side_by_side() -> None:
    """RET-4221, and without session context too (section 10, integration 4)."""
    planned = await plan("天气")
    assert types(planned) == ["memory", "skill", "resource"]
    assert planned.unsure


async def test_two_types_claiming_the_same_words_are_a_conflict() -> None:
    config = PlannerConfig(terms={"memory": ["笔记"], "resource": ["笔记"], "skill": []})
    planned = await plan("找一下笔记", config)
    assert planned.unsure
    assert len(planned.queries) == 3


async def test_english_terms_match_whole_words_only() -> None:
    assert (await plan("docstrings and prefersection")).unsure


async def test_hinted_types_beat_the_words() -> None:
    hints = PlannerHints(context_types=("resource",), intent="look up", must_have_terms=("x",))
    planned = await plan("how to deploy", hints=hints)
    assert types(planned) == ["resource"]
    assert planned.queries[0].hints.intent == "look up"
    assert planned.queries[0].hints.must_have_terms == ("x",)


async def test_the_session_decides_where_the_words_do_not() -> None:
    session = SessionArchive(context_types=("skill",))
    assert types(await plan("天气", session=session)) == ["skill"]
    assert types(await plan("接口文档", session=session)) == ["resource"]


async def test_session_topics_complete_a_short_query_only() -> None:
    session = SessionArchive(topics=("量子计算", "编译器"))
    assert (await plan("它呢", session=session)).queries[0].text == "它呢 量子计算 编译器"
    long = "请详细说明一下编译器的前端如何工作"
    assert (await plan(long, session=session)).queries[0].text == long


async def test_default_categories_fill_in_only_where_none_are_given() -> None:
    config = PlannerConfig(default_categories={"skill": ["procedure"]})
    assert (await plan("怎么做饭", config)).queries[0].categories == ("procedure",)
    assert (await plan("怎么做饭", config, categories=("recipe",))).queries[0].categories == ("recipe",)


async def test_the_account_comes_from_the_context() -> None:
    """C20."""
    planned = await plan("天气", owner_space="user:ann")
    assert {query.filters.account_id for query in planned.queries} == {"acme"}
    assert {query.filters.owner_space for query in planned.queries} == {"user:ann"}


def test_the_stand_in_for_a_failed_planner_searches_all_types_with_the_text_as_it_is() -> None:
    planned = three_queries(CTX, PlanRequest("它呢", 5, session=SessionArchive(topics=("量子",))))
    assert types(planned) == ["memory", "skill", "resource"]
    assert {query.text for query in planned.queries} == {"它呢"}
    assert planned.unsure
