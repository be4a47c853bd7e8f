"""The builder of HTML: what is no HTML yet is escaped, wherever it is put."""

from acp_bridge.terminal.view.element import Markup, element, joined, text


def test_a_text_is_escaped_and_html_is_not() -> None:
    bold = element("b", "<i>\x1b")
    assert bold == "<b>&lt;i&gt;\\x1b</b>"
    assert element("p", bold, "&") == f"<p>{bold}&amp;</p>"
    assert joined([bold, "<"], "\n") == f"{bold}\n&lt;"


def test_what_is_added_to_html_as_a_text_is_a_text_again() -> None:
    assert element("p", element("b", "x") + "!") == "<p>&lt;b&gt;x&lt;/b&gt;!</p>"
    assert not isinstance(Markup() + "<", Markup)


def test_an_attribute_can_not_end_itself_and_may_have_no_value() -> None:
    shown = element("a", class_="c", data_do='"><x>', disabled=True, hidden=False, title=None, n=0)
    assert shown == '<a class="c" data-do="&quot;&gt;&lt;x&gt;" disabled n="0"></a>'
    assert element("img", alt=text("x")) == '<img alt="x">'
