"""All that serving plugs in is plugged in here."""

from tests.support.all_plugged import all_plugged as all_plugged
