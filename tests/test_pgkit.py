from typing import Any
import uuid
from contextrouter.testing import ProviderSuite
from contextrouter.builtin.providers.postgres import Postgres
from contextrouter.builtin.providers.postgres_embedded import PREFIX, example_folder

class TestPlain(ProviderSuite):
    plugin = Postgres

class TestVec(ProviderSuite):
    plugin = Postgres
    dimensions = 16
    def make(self) -> Any:
        return Postgres(dsn=PREFIX + example_folder(), schema=f"e_{uuid.uuid4().hex[:24]}", exact_below=0)

from contextrouter.testing import FactSourceSuite
from contextrouter.builtin.facts.postgres import PostgresFacts
class TestFacts(FactSourceSuite):
    plugin = PostgresFacts
