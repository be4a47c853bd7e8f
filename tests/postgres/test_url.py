"""The URL of a database: what it says, what it may not say, and that no message repeats it."""

import subprocess
import sys

import pytest

from acp_bridge.postgres.url import parse

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "conninfo"),
    [
        ("postgresql://db/sessions", "host='db' dbname='sessions' port='5432'"),
        ("postgres://db/sessions", "host='db' dbname='sessions' port='5432'"),
        ("POSTGRESQL://db:6543/s", "host='db' port='6543' dbname='s'"),
        ("postgresql://me@db/s", "host='db' dbname='s' user='me' port='5432'"),
        (
            "postgresql://m%40e@db/a%20b%27c%5c",
            r"host='db' dbname='a b\'c\\' user='m@e' port='5432'",
        ),
        ("postgresql://[::1]:6543/s", "host='::1' port='6543' dbname='s'"),
        ("postgresql://a,b:6543/s", "host='a,b' port='5432,6543' dbname='s'"),
        ("postgresql:///s?host=/run/pg&port=6543", "dbname='s' host='/run/pg' port='6543'"),
        ("postgresql://%2Frun%2Fpg/s", "host='/run/pg' dbname='s' port='5432'"),
        ("postgresql://?host=a,b&dbname=s", "host='a,b' dbname='s' port='5432,5432'"),
        (
            "postgresql://db/s?sslmode=verify-full&target_session_attrs=read-write",
            "host='db' dbname='s' sslmode='verify-full' target_session_attrs='read-write'"
            " port='5432'",
        ),
    ],
)
def test_a_url_becomes_what_libpq_is_given(url: str, conninfo: str) -> None:
    assert parse(url).conninfo == conninfo
    library = pytest.importorskip("psycopg.conninfo")
    assert library.conninfo_to_dict(conninfo)["dbname"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (f"postgresql://me:{SECRET}@db/s", "password"),
        (f"postgresql://:{SECRET}@db/s", "password"),
        (f"postgresql://me:a@{SECRET}@db/s", "password"),
        ("postgresql://me:@db/s", "password"),
        (f"postgresql://me:{SECRET}/x@db/s", "port"),  # what comes before the / is a host here
        (f"postgresql://db/s?password={SECRET}", "password"),
        (f"postgresql://db/s?pass%77ord={SECRET}", "password"),
        (f"postgresql://db/s?sslpassword={SECRET}", "password"),
        (f"postgresql://db/s?passfile=/{SECRET}", "password"),
        (f"postgresql://db/s?service={SECRET}", "service"),
        (f"postgresql://db/s?scram_client_key={SECRET}", "key"),
        (f"postgresql://db/s?oauth_client_secret={SECRET}", "password"),
        (f"postgresql://db/s?{SECRET}=1", "sslmode"),
        (f"postgresql://db/s?options=-c%20{SECRET}", "sslmode"),
        (f"postgresql://db/s?sslmode{SECRET}", "sslmode"),
        (f"postgresql://db/s?host={SECRET}", "twice"),
        ("postgresql://db", "no database"),
        ("postgresql://db/", "no database"),
        ("postgresql:///s", "no host"),
        ("postgresql://a,,b/s", "no host"),
        ("postgresql://db:0/s", "port"),
        ("postgresql://db:65536/s", "port"),
        (f"postgresql://db:{SECRET}/s", "port"),
        ("postgresql://a:1,b:2/s?port=1", "twice"),
        ("postgresql://a,b/s?port=1,2,3", "port"),
        ("postgresql://[::1/s", "brackets"),
        (f"postgresql://db/{SECRET}%zz", "%25"),
        (f"postgresql://db/{SECRET}%ff", "UTF-8"),
        (f"postgresql://db/{SECRET}\udcff", "UTF-8"),
        (f"postgresql://db/{SECRET}%00", "control"),
        (f"postgresql://db/{SECRET}\0", "control"),
        (f"postgresql://db/{SECRET}\n", "control"),
        (f"mysql://me:{SECRET}@db/s", "postgresql://"),
        (f"{SECRET}", "postgresql://"),
        ("", "postgresql://"),
    ],
)
def test_what_is_wrong_is_refused_in_a_sentence_that_repeats_nothing(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse(url)
    told = str(caught.value)
    assert why in told
    assert SECRET not in told
    assert type(caught.value) is ValueError


def test_the_folder_is_the_same_for_the_same_servers_and_database() -> None:
    folder = parse("postgresql://db/sessions").folder
    assert (
        folder == "94b291d49e0cb876"
    )  # a changed one would leave what is kept of a database behind
    same = ("postgres://me@DB:5432/sessions?sslmode=require", "postgresql:///sessions?host=db")
    assert {parse(each).folder for each in same} == {folder}
    assert parse("postgresql://a,b:1/s").folder == parse("postgresql://b:1,a/s").folder


def test_another_server_port_or_database_has_another_folder() -> None:
    urls = ("db/a", "db/b", "db2/a", "db:1/a", "db,db2/a", "%2FDB/a", "%2Fdb/a", "a/db")
    assert len({parse(f"postgresql://{each}").folder for each in urls}) == len(urls)


def test_a_url_is_read_without_the_librarys_import() -> None:
    code = (
        "import sys; from acp_bridge.postgres.url import parse;"
        "parse('postgresql://db/s');"
        "print(sorted({'psycopg', 'asyncio'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
