"""Errors of a real database on demand: a trigger raises any SQLSTATE, once or until it is over."""

import random
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

#: one SQLSTATE or more of each class of errors that PostgreSQL has (its appendix A).
STATES = (
    *("03000", "08000", "08006", "08P01", "09000", "0A000", "0B000", "0F001", "0L000", "0P000"),
    *("0Z002", "20000", "21000", "22000", "22003", "22021", "22P05", "23000", "23505", "23514"),
    *("24000", "25000", "25006", "25P02", "25P03", "26000", "27000", "28000", "28P01", "2B000"),
    *("2D000", "2F000", "34000", "38000", "39000", "3B000", "3D000", "3F000", "40000", "40001"),
    *("40003", "40P01", "42000", "42501", "42601", "42703", "42883", "42P01", "44000", "53000"),
    *("53100", "53200", "53300", "54000", "55000", "55006", "55P03", "57000", "57014", "57P01"),
    *("57P02", "57P03", "57P04", "58000", "58030", "72000", "F0000", "HV000", "P0001", "XX000"),
    *("XX001", "XX002"),
)
_MADE = """
CREATE TABLE public.fault(state text, few bigint, holding text);
CREATE SEQUENCE public.faults_raised;
CREATE FUNCTION public.fail() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
DECLARE it public.fault;
BEGIN
  SELECT * INTO it FROM public.fault;
  IF FOUND AND position(it.holding IN to_jsonb(NEW)::text) > 0 THEN
    IF nextval('public.faults_raised') <= it.few THEN
      RAISE EXCEPTION 'a secret of the server' USING ERRCODE = it.state;
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER fail BEFORE INSERT ON acp_bridge.writes FOR EACH ROW EXECUTE FUNCTION public.fail();
"""
_LEASES = """
CREATE TRIGGER fail BEFORE UPDATE ON acp_bridge.sessions FOR EACH ROW
EXECUTE FUNCTION public.fail();
CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON acp_bridge.bridges FOR EACH ROW
EXECUTE FUNCTION public.fail();
"""
ALWAYS = 1 << 40


def drawn(count: int, seed: int) -> list[str]:
    """Some SQLSTATEs, no two of one class."""
    states = random.Random(seed).sample(STATES, len(STATES))
    return list({state[:2]: state for state in states}.values())[:count]


class Faults:
    """Makes statements of bridges fail in the database of `url`, that of a superuser."""

    def __init__(self, url: str, *, leases: bool = False) -> None:
        """Nothing fails yet. `leases`: renewals, claims and fences can, and not only writes."""
        self._url = url
        self._connection: psycopg.Connection | None = None
        self._do(_MADE + (_LEASES if leases else ""))

    def _do(self, sql: str, *values: object) -> psycopg.Cursor:
        """Over one connection: tests look again and again, and each one is a process there."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, autocommit=True)
            weakref.finalize(self, self._connection.close)
        return self._connection.execute(sql.encode(), values or None)

    def arm(self, state: str, few: int = ALWAYS, holding: str = "") -> None:
        """Let the next `few` rows fail with this SQLSTATE, those alone that hold a text."""
        self._do("ALTER SEQUENCE public.faults_raised RESTART")
        self._do("INSERT INTO public.fault VALUES (%s, %s, %s)", state, few, holding)

    def over(self) -> None:
        """Nothing fails any more."""
        self._do("DELETE FROM public.fault")

    @property
    def raised(self) -> int:
        """How many rows came since it was armed that could fail."""
        row = self._do(
            "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.faults_raised"
        ).fetchone()
        assert row
        return int(row[0])

    @contextmanager
    def lasting(self, state: str) -> Iterator[None]:
        """Every row fails with this SQLSTATE."""
        self.arm(state)
        try:
            yield
        finally:
            self.over()
