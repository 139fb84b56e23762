"""TFRecords, in an environment with the package tfrecord of PyPI: runs
tfrecord_package.py, and the parts of patterns of such shards."""

import pypi_environment


def test_in_an_environment_with_tfrecord(tmp_path):
    pypi_environment.run(
        tmp_path,
        "tfrecord",
        ["tfrecord==1.14.6", "crc32c==2.7.1", "protobuf==5.29.5"],
        ["tfrecord_package.py", "parts_test.py"],
    )
