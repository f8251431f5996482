"""How records are cut into bundles changes nothing (J-2, S-K1, S-W7): for every operator and step.

One bundle, many bundles and bundles of one record give equal net content, equal late records and
equal dead letters, with the same advances of watermark and clock between the same records. Exempt
are early panes (S-O1), vectorised processes (S-K9), and the time of a table's group (T-3).
"""

from __future__ import annotations

import pytest

from tests.property.bundled import arrivals, run
from tests.property.every_operator import CASES, Case

pytestmark = pytest.mark.long
WHOLE = 10**6


@pytest.mark.parametrize("case", [each for each in CASES.values() if each.is_short], ids=str)
def test_few_records_one_by_one(case: Case) -> None:
    what = arrivals(120, case.inputs, case.written)
    whole = run(case.build, what, WHOLE, content=case.content)
    whole.check_equal(run(case.build, what, 1, content=case.content))
