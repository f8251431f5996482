"""AssignWindows and MergeWindows: where in event time elements are grouped."""

from lowwater.windows._base import Assignment as Assignment
from lowwater.windows._base import Merged as Merged
from lowwater.windows._base import MergeScope as MergeScope
from lowwater.windows._base import MergingWindowFunction as MergingWindowFunction
from lowwater.windows._base import NestedWindowFunction as NestedWindowFunction
from lowwater.windows._base import SlicedWindowFunction as SlicedWindowFunction
from lowwater.windows._base import Window as Window
from lowwater.windows._base import WindowFunction as WindowFunction
from lowwater.windows.bounded import ColumnWindows as ColumnWindows
from lowwater.windows.calendar import CalendarWindows as CalendarWindows
from lowwater.windows.counted import CountWindows as CountWindows
from lowwater.windows.cumulative import CumulativeWindows as CumulativeWindows
from lowwater.windows.custom import CustomWindows as CustomWindows
from lowwater.windows.fixed import FixedWindows as FixedWindows
from lowwater.windows.global_window import GlobalWindow as GlobalWindow
from lowwater.windows.sessions import Sessions as Sessions
from lowwater.windows.sliding import SlidingWindows as SlidingWindows
