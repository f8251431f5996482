"""When in processing time a window's results are materialised: the trigger algebra."""

from lowwater.triggers._values import AfterAll as AfterAll
from lowwater.triggers._values import AfterAny as AfterAny
from lowwater.triggers._values import AfterCount as AfterCount
from lowwater.triggers._values import AfterEach as AfterEach
from lowwater.triggers._values import AfterProcessingTime as AfterProcessingTime
from lowwater.triggers._values import AfterWatermark as AfterWatermark
from lowwater.triggers._values import Always as Always
from lowwater.triggers._values import CustomTrigger as CustomTrigger
from lowwater.triggers._values import Default as Default
from lowwater.triggers._values import Moment as Moment
from lowwater.triggers._values import Never as Never
from lowwater.triggers._values import OrFinally as OrFinally
from lowwater.triggers._values import Outlook as Outlook
from lowwater.triggers._values import Repeatedly as Repeatedly
from lowwater.triggers._values import Trigger as Trigger
from lowwater.triggers._values import TriggerContext as TriggerContext
from lowwater.triggers._values import TriggerLogic as TriggerLogic
from lowwater.triggers._values import looks_at_watermark as looks_at_watermark
from lowwater.triggers._values import outlook as outlook
