"""Recognises a refusal because of the model's window, and reads the window's size from it.

Each server words it differently, so neither is a list of their sentences. A refusal is known by
what it says is too large, and by whose limit that exceeds. A number is the window only where its
place says so: behind the words for a limit, or in front of "maximum". A number of what was sent, of
requests in a minute, of characters, or an error's code stands in another place.
"""

from __future__ import annotations

import re

#: these are said of nothing else
_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size|limit)|(model|sequence) length"
    r"|maximum context|\bn_ctx\b|max_model_len"
    r"|(prompt|input) (is )?too (long|large)|too many (input |prompt )?tokens"
    r"|exceeds? the (maximum|limit).{0,40}tokens|token (count|limit).{0,40}exceed"
    r"|exceed\w* .{0,40}token limit|reduce the length"
    r"|max_new_tokens. must be <=|inputs. must have less than \d+ tokens"
    r"|range of input length",
    re.IGNORECASE,
)
_SENT = r"\b(prompts?|inputs?|messages?|tokens?|conversation|history|request|length)\b"
#: what was sent, and that it is more than something
_TOO_LARGE = re.compile(
    rf"{_SENT}[^.;]{{0,60}}\b(exceed\w*|larger|longer|greater|more|over|beyond|above)\b[^.;]{{0,40}}"
    r"(max|limit|allow|length|size|capacity|context|window|support|accept|handle|fit)"
    rf"|{_SENT}[^.;]{{0,40}}\b(too|so) (long|large|big|many)|\blength\b[^.;]{{0,30}}\blimit is \d"
    rf"|{_SENT}[^.;]{{0,40}}\b(not|n't) fit|max(imum)?[ _-](prompt|input)[ _-](length|size|tokens)",
    re.IGNORECASE,
)
#: what else may be more than something
_OTHER_MATTER = re.compile(
    r"per[ _-](min|hour|day|second)|rate[ _-]?limit|quota|credit|timed? ?-?out|seconds"
    r"|\b(bytes|[KMG]i?B|arrays?|strings?|tools?|files?|output tokens|temperature|top_p)\b",
    re.IGNORECASE,
)
#: a limit of what a model writes, or of requests in a time, is no window
_OF_OTHER_THINGS = re.compile(
    r"\b(TPM|RPM|TPD|RPD)\b|per[ _-](min|hour|day|second)|rate[ _-]limit|\boutput tokens\b"
    r"|\b(string|array)\b",
    re.IGNORECASE,
)
#: a number that stands alone: not in a name, a version or a decimal
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?![\w]|\.\d)")
#: how far a number's place reaches to both sides, in characters
_PLACE = 70
#: where the words about a number begin: behind another number, a sentence, a member of JSON
_EDGE = re.compile(r"\d|[.;!?](?:\s|\\n)|\",|[,{]\s*\"|\\n")
_LIMIT = re.compile(
    r"max(?:imum)?\b|max_model_len|\blimit(?:ed)?\b|\bn_ctx\b|\ballow\w*|\bat most\b|\bup to\b"
    r"|(?<!your )(?<!input )(?<!current )(?<!requested )(?<!total )"
    r"context[ _-]?(?:length|window|size)"
    r"|must be (?:<|less)|must have less than|>=?\s*$|input length should be \[",
    re.IGNORECASE,
)
#: words between those for a limit and the number by which that is something else
_NOT_THE_LIMIT = re.compile(
    r"\bby\s*$|\bcode\b|\bstatus\b|\berror\b|\bid\b|\btype\b|\bn_(?!ctx)\w+"
    r"|request(?:ed|s| contains)\b|\bcontains?\b|\bresult(?:ed|s) in\b|\bpassed\b|\bgiven\b|\bgot\b"
    r"|\byour?\b|\brequires?\b|\breceived\b|\btried\b"
    r"|\bmax_(?:new_|completion_|output_)?tokens\b|\boutput\b|\bcompletion\b"
    r"|\bcharacters?\b|\bbytes?\b|\bimages?\b|\bwords?\b|\bseconds?\b|\bfiles?\b",
    re.IGNORECASE,
)
_IS_EXCEEDED = re.compile(
    r"\s*[+/]\s*\d|[\s\w]{0,12}[),]?\s*(?:which |that )?"
    r"(?:exceed|is too|is (?:long|larg|great|more)|>)"
)
_IS_MAXIMUM = re.compile(r"\s*(?:tokens?\s*)?(?:is the )?max(?:imum)?\b", re.IGNORECASE)
_OTHER_UNIT = re.compile(
    r"\s*(?:char|byte|[kmg]i?b\b|image|message|tool|function|second|item|file|page|request|part|word)",
    re.IGNORECASE,
)
_ANY_SIZE = re.compile(
    r"token|length|\b(too|so) (long|large|big|many|much)\b|context|window|exceed|capacity|overflow",
    re.IGNORECASE,
)
_SOMETHING_ELSE = re.compile(
    r"param|support|schema|tool|function|image|signature|\brole|temperature|reasoning|thinking"
    r"|stream|version|endpoint|permission|access|organi[sz]ation|agreement|region|json|field"
    r"|property|enum|\btype\b.{0,20}\b(must|should|expected)|account|disabled|deprecated",
    re.IGNORECASE,
)
#: how some servers write a sign in JSON, and a range that has the window as its end
_ESCAPED = (("\\u003e", ">"), ("\\u003c", "<"), ("length should be [1,", "length should be ["))
#: tokens; a number outside of these limits is not the size of a window
_LEAST, _MOST = 256, 100_000_000


def is_overflow(text: str) -> bool:
    """Returns True if a provider's words say that the input doesn't fit the model's window."""
    if _OVERFLOW.search(text) is not None:
        return True
    return _TOO_LARGE.search(text) is not None and _OTHER_MATTER.search(text) is None


def may_be_overflow(text: str) -> bool:
    """Returns True if a refusal's words don't say that it is about something else than its length.

    Servers have such words in any language, or none.
    """
    return _ANY_SIZE.search(text) is not None or _SOMETHING_ELSE.search(text) is None


def window_in(text: str) -> int | None:
    """Returns the size of the window in tokens that a provider's words name; None if they don't."""
    for written, meant in _ESCAPED:
        text = text.replace(written, meant)
    for found in _NUMBER.finditer(text):
        before = text[max(0, found.start() - _PLACE) : found.start()]
        after = text[found.end() : found.end() + _PLACE]
        if _is_window(_from_edge(before), after):
            window = int(found[0].replace(",", ""))
            if _LEAST <= window <= _MOST:
                return window
    return None


def _from_edge(before: str) -> str:
    edges = [edge.end() for edge in _EDGE.finditer(before)]
    return before[edges[-1] :] if edges else before


def _is_window(before: str, after: str) -> bool:
    """Returns True if a number between these words is the window."""
    if _OTHER_UNIT.match(after) or _OF_OTHER_THINGS.search(before + after):
        return False
    if _IS_MAXIMUM.match(after):
        return True
    limits = [limit.end() for limit in _LIMIT.finditer(before)]
    if not limits or _IS_EXCEEDED.match(after):
        return False
    between = before[limits[-1] :]
    if _NOT_THE_LIMIT.search(between):
        return False
    # In brackets it may be the code of an error, unless tokens are counted there.
    bracketed = between.rstrip().endswith(("(", "["))
    return not bracketed or "token" in before.lower() or "token" in after[:12].lower()
