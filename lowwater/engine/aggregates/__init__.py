"""The built-in vectorised aggregates, and the protocol for user-defined combiners."""

from lowwater.engine.aggregates._base import Aggregate as Aggregate
from lowwater.engine.aggregates._base import AggregateInput as AggregateInput
from lowwater.engine.aggregates._base import AggregateSpec as AggregateSpec
from lowwater.engine.aggregates._base import Needs as Needs
from lowwater.engine.aggregates._base import State as State
from lowwater.engine.aggregates._base import StateColumn as StateColumn
from lowwater.engine.aggregates._combine import Combiner as Combiner
from lowwater.engine.aggregates._combine import checked_combiner as checked_combiner
from lowwater.engine.aggregates._retractable import signed_specs as signed_specs
from lowwater.engine.aggregates.specs import all as all
from lowwater.engine.aggregates.specs import any as any
from lowwater.engine.aggregates.specs import collect as collect
from lowwater.engine.aggregates.specs import collect_set as collect_set
from lowwater.engine.aggregates.specs import combine as combine
from lowwater.engine.aggregates.specs import count as count
from lowwater.engine.aggregates.specs import count_distinct as count_distinct
from lowwater.engine.aggregates.specs import first as first
from lowwater.engine.aggregates.specs import last as last
from lowwater.engine.aggregates.specs import max as max
from lowwater.engine.aggregates.specs import max_by as max_by
from lowwater.engine.aggregates.specs import mean as mean
from lowwater.engine.aggregates.specs import min as min
from lowwater.engine.aggregates.specs import min_by as min_by
from lowwater.engine.aggregates.specs import std as std
from lowwater.engine.aggregates.specs import sum as sum
from lowwater.engine.aggregates.specs import var as var
