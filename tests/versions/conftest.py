"""All that serving plugs in is plugged in here."""

from tests.core.session.conftest import journal as journal
from tests.core.session.conftest import no_errors as no_errors
from tests.support.all_plugged import all_plugged as all_plugged
