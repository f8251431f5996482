"""An embedded, partitioned, durable log of records."""

from lowwater.io.log.log import Log as Log
from lowwater.io.log.reader import LogReader as LogReader
from lowwater.io.log.source import LogSource as LogSource
from lowwater.io.log.values import Compacted as Compacted
from lowwater.io.log.values import Erased as Erased
from lowwater.io.log.values import LogBatch as LogBatch
from lowwater.io.log.values import Recovered as Recovered
