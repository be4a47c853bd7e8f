"""What the wire's property tests draw from: JSON values, messages and hostile lines."""

from __future__ import annotations

import json

from hypothesis import strategies as st

# Lone surrogates included: JSON can write them, UTF-8 cannot.
texts = st.text(st.characters(exclude_categories=()), max_size=12)
numbers = st.integers() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
ids = st.integers() | texts | st.none() | st.floats(allow_nan=False)
messages = (
    st.fixed_dictionaries({"method": texts}, optional={"id": ids, "params": values, "x": values})
    | st.fixed_dictionaries({"id": ids, "result": values})
    | st.fixed_dictionaries({"id": ids, "error": values})
)


def _line(value: object) -> bytes:
    return json.dumps(value).encode()


#: One line each, without its newline; most are no message.
hostile_lines = st.one_of(
    messages.map(_line),
    values.map(_line),
    st.fixed_dictionaries(
        {}, optional={"id": values, "method": values, "result": values, "error": values}
    ).map(_line),
    st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")),
    st.sampled_from(
        [
            b"",
            b"\r",
            b" \t",
            b"[]",
            b"[1]",
            b"5",
            b'"x"',
            b"null",
            b"{",
            b"{}",
            b'{"method":"m"',
            b'{"method":"m"}{"method":"m"}',
            b'{"method":5,"id":1}',
            b'{"id":true,"method":"m"}',
            b'{"id":{},"method":"m"}',
            b'{"id":1}',
            b'{"id":1,"method":"m"}',
            b'{"id":1,"method":"m","params":NaN}',
            b'{"id":1,"result":1,"error":{"code":-1,"message":"e"}}',
            b'{"id":1,"error":"e"}',
            b'{"id":[1],"result":1}',
            b'{"method":"\xff"}',
            b'\xef\xbb\xbf{"method":"m"}',
            b'{"method":"m","params":' + b"[" * 300 + b"]" * 300 + b"}",
            b"[" * 5000,
        ]
    ),
)
