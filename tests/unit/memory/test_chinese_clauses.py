"""Statements of Chinese texts are whole clauses that say whom they are about."""

from __future__ import annotations

from app.memory.chinese_clauses import complete_clauses
from tests.support.tables import each_of


@each_of(
    ("text", "found", "completed"),
    [
        ("陈静雯是我的上司。", ["静雯是我的上司"], ["陈静雯是我的上司"]),
        ("李强是我的叔叔，其生日是8月7日。", ["其生日是8月7日"], ["李强是我的叔叔，其生日是8月7日"]),
        ("我弟弟学历挺高的，是个博士。", ["是个博士"], ["我弟弟学历挺高的，是个博士"]),
        ("今天很忙。他在上海工作。", ["在上海工作"], [None]),
        ("我的上司，他在深圳工作。", ["我的上司", "在深圳工作"], [None, "我的上司，他在深圳工作"]),
        ("我住在杭州西湖区。", ["我住在", "西湖区"], ["我住在杭州西湖区", None]),
        ("我对花生过敏！请推荐零食", ["花生过敏"], ["我对花生过敏"]),
        ("我喜欢爬山\n请写一首诗", ["喜欢爬山"], ["我喜欢爬山"]),
        ("帮我写封邮件,我在华为做工程师;谢谢", ["华为做工程师"], ["我在华为做工程师"]),
        ("I live in Leeds, and I like 茶.", ["live in Leeds"], ["live in Leeds"]),
        ("私は東京に住んでいます、猫がいます。", ["東京に住んでいます"], ["東京に住んでいます"]),
        ("저는 서울에 살아요, 고양이가 있어요.", ["서울에 살아요"], ["서울에 살아요"]),
        ("我住在杭州。", [], []),
    ],
)
def test_a_chinese_statement_is_a_whole_clause(text: str, found: list[str], completed: list[str | None]) -> None:
    spans = [(text.index(words), text.index(words) + len(words)) for words in found]
    result = [None if span is None else text[slice(*span)] for span in complete_clauses(spans, text)]
    assert result == completed
