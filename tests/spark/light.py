"""Settings that make small queries cheap: what costs most here is not what is tested."""

from __future__ import annotations

WORKER_DAEMON = "lowwater.spark.worker_daemon"  # named, as importing it imports what workers need

# The JVM never lives for long; and Hadoop starts programs (chmod, readlink) for many files. With
# C1 alone the JVM has room for 48 MB of code: Spark's is more, and was compiled again and again.
# Compiling after a third of the usual calls saves a twentieth of the CPU; after a tenth, nothing.
# Not verifying Spark's classes saves a tenth of what loading them costs. Room for them from the
# beginning saves a collection of garbage each time that room would be made.
FAST = (
    "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.3"
    " -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:MetaspaceSize=400m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)

# Checkpoints through Hadoop's older interface need no ``readlink`` for each file. The drivers that
# tests kill (``query_to_kill``) write theirs as Spark does of itself.
_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
LIGHT = {
    "spark.python.daemon.module": WORKER_DAEMON,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
