"""The Spark runner: the engine's own operator inside Structured Streaming, a call per key group."""
