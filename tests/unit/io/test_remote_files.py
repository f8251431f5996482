"""Files in object stores."""

from __future__ import annotations

from tests.s3_server import S3Server


def test_the_server_keeps_objects(s3_server: S3Server) -> None:
    bucket, filesystem = s3_server.bucket(), s3_server.filesystem()
    with filesystem.open_output_stream(f"{bucket}/a/b") as output:
        output.write(b"some")
    with filesystem.open_input_stream(f"{bucket}/a/b") as stream:
        assert stream.read() == b"some"
