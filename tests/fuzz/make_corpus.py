"""Writes the seeds of the fuzzers of ring, attach socket and requests:
make_corpus.py tests/fuzz, in the root of the repository; needs protoc."""

import os
import struct
import subprocess
import sys


def write(out, folder, name, data):
    directory = os.path.join(out, folder, "corpus")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)


def encode(message, text):
    """A message of proto/datasetd/v1 from its text format."""
    return subprocess.run(
        ["protoc", "-Iproto", f"--encode=datasetd.v1.{message}",
         "proto/datasetd/v1/dataset.proto", "proto/datasetd/v1/feed.proto"],
        input=text.encode(), stdout=subprocess.PIPE, check=True).stdout


# Pipelines for an image of 7 x 5 pixels in 3 channels.
_PIPELINES = {
    "moves": """
        transforms {pad {padding {left: 1 top: 2 right: 3 bottom: 1}
                         fill: 3 padding_mode: PADDING_MODE_EDGE} draw_id: 1}
        transforms {random_crop {height: 6 width: 6 padding {left: 1}
                                 padding_mode: PADDING_MODE_REFLECT}}
        transforms {center_crop {height: 9 width: 4}}
        transforms {crop {top: -1 left: 2 height: 4 width: 4}}
        transforms {random_horizontal_flip {p: 0.25}}
        transforms {random_vertical_flip {}} transforms {horizontal_flip {}}
        transforms {vertical_flip {}} transforms {alternating_flip {}}""",
    "resampling": """
        transforms {random_resized_crop {
            size {height: 6 width: 8} scale {min: 0.1 max: 1}
            ratio {min: 0.5 max: 2}
            interpolation: INTERPOLATION_MODE_BICUBIC}}
        transforms {random_affine {
            degrees {min: -30 max: 30} translate {x: 0.1 y: 0.2}
            scale {min: 0.5 max: 2} shear_x {min: -5 max: 5} fill: 7
            interpolation: INTERPOLATION_MODE_BILINEAR}}
        transforms {random_rotation {degrees {min: -90 max: 90}
                                     center {x: 1 y: 2}}}
        transforms {resize {shorter_edge: 5 max_size: 9 antialias: false}}""",
    "fixed": """
        transforms {resized_crop {top: 1 left: 1 height: 3 width: 3
                                  size {height: 6 width: 6}}}
        transforms {rotate {angle: 90 expand: true}}
        transforms {affine {angle: 10 translate {x: 1 y: -1} scale: 1.5
                            shear {x: 3}}}
        transforms {resize {size {height: 4 width: 4}
                            interpolation: INTERPOLATION_MODE_NEAREST_EXACT}}
        transforms {erase {top: 1 left: 1 height: 2 width: 2 value: 9}}""",
    "colour": """
        transforms {color_jitter {brightness {min: 0.5 max: 1.5}
                                  contrast {min: 0.5 max: 1.5}
                                  saturation {min: 0.5 max: 1.5}
                                  hue {min: -0.1 max: 0.1}}}
        transforms {random_grayscale {p: 0.5}} transforms {random_invert {}}
        transforms {random_posterize {bits: 3}}
        transforms {random_solarize {threshold: 128}}
        transforms {random_adjust_sharpness {sharpness_factor: 2}}
        transforms {random_autocontrast {}} transforms {random_equalize {}}
        transforms {gaussian_blur {kernel_size {height: 3 width: 5}
                                   sigma {min: 0.1 max: 2}}}""",
    "fixed_colour": """
        transforms {adjust_brightness {brightness_factor: 0.5}}
        transforms {adjust_contrast {contrast_factor: 2}}
        transforms {adjust_saturation {saturation_factor: 2}}
        transforms {adjust_hue {hue_factor: -0.25}}
        transforms {adjust_sharpness {sharpness_factor: 0}}
        transforms {posterize {bits: 2}} transforms {solarize {threshold: 99}}
        transforms {invert {}} transforms {autocontrast {}}
        transforms {equalize {}} transforms {grayscale {
            num_output_channels: 3}}""",
    "erasing": """
        transforms {random_apply {p: 0.7 transforms {random_erasing {
            p: 1 scale {min: 0.1 max: 0.4} ratio {min: 0.5 max: 2}}}
            transforms {cutout {size: 2 fill: 1}}}}
        transforms {to_dtype {dtype: DTYPE_FLOAT32 scale: true}}
        transforms {random_erasing {is_value_random: true}}
        transforms {normalize {mean: 0.4 mean: 0.5 mean: 0.6
                               std: 0.2 std: 0.3 std: 0.4}}""",
    "policies": """
        transforms {rand_augment {num_ops: 3 magnitude: 12 fill: 7
                                  interpolation: INTERPOLATION_MODE_BILINEAR}}
        transforms {trivial_augment_wide {num_magnitude_bins: 9}}
        transforms {auto_augment {policy: AUTO_AUGMENT_POLICY_CIFAR10}}
        transforms {random_perspective {distortion_scale: 0.8 p: 0.7 fill: 7}}
        transforms {to_dtype {dtype: DTYPE_FLOAT32 scale: true}}
        transforms {gaussian_noise {mean: 0.1 sigma: 0.2 clip: false}}""",
    "mix": """
        transforms {to_dtype {dtype: DTYPE_BFLOAT16 scale: true}}
        transforms {mix_up {alpha: 0.2 num_classes: 3 labels: "label"}}""",
    "cut": """
        transforms {cut_mix {num_classes: 3 per_sample: true}}""",
}


def write_requests(out):
    """Seeds of request_fuzz: kind, message."""
    def add(name, kind, data):
        write(out, "requests", name, bytes([kind]) + data)

    for name, pipeline in _PIPELINES.items():
        fields = f'fields {{key: "image" value {{{pipeline}}}}}'
        add("open_" + name, 0, encode("OpenFeedRequest", f"""options {{
            batch_size: 4 shuffle: true seed: 5 prefetch: 1 {fields}}}"""))
        add("explain_" + name, 1, encode("ExplainTransformsRequest", f"""
            {fields} seed: 3 epoch: 1 indices: 0 indices: 11"""))
    crop = """transforms {random_crop {height: 4 width: 4} draw_id: 2}"""
    add("open_pair", 0, encode("OpenFeedRequest", f"""options {{
        batch_size: 5 drop_last: true rank: 1 world_size: 2 prefetch: 2
        fields {{key: "image" value {{{crop}}}}}
        fields {{key: "mask" value {{{crop} layout: LAYOUT_NHWC}}}}
        fields {{key: "label" value {{transforms {{
            to_dtype {{dtype: DTYPE_FLOAT32}}}}}}}}
        start {{epoch: 2 batch: 1}}}} excluded_exports: 2"""))
    add("open_subset", 0, encode("OpenFeedRequest", """options {
        batch_size: 2 shuffle: true subset_size: 4
        name: "n"}"""))
    add("open_order", 0, encode("OpenFeedRequest", """options {
        batch_size: 2 client_order {draws_by_sample: true}}"""))
    add("open_weighted", 0, encode("OpenFeedRequest", """options {
        batch_size: 2 rank: 1 world_size: 3 first_position: 4
        weighted_order {num_samples: 5 lists_samples: true num_draws: 9}}"""))
    add("open_mixture", 0, encode("OpenFeedRequest", f"""options {{
        batch_size: 4 shuffle: true rank: 1 world_size: 2 mixture {{
            parts {{dataset: "a" ratio: 0.3 has_own_fields: true
                fields {{key: "image" value {{{crop}}}}}}}
            parts {{dataset: "c" ratio: 2.5 has_own_fields: true
                fields {{key: "image" value {{{crop}}}}}}}
            num_rows: 31 is_fixed_per_batch: true}}}}"""))
    add("open_concat", 0, encode("OpenFeedRequest", """options {
        batch_size: 4 mixture {parts {dataset: "c"} parts {dataset: "a"}
            parts {dataset: "c"}}}"""))
    noise = """fields {key: "sound" value {
        crop {length: 7 place: CROP_PLACE_RANDOM fill: 1}
        transforms {add_noise {noise: "s" snr {min: -5 max: 5} p: 0.5}}
        transforms {random_apply {transforms {add_noise {
            noise: "a" field: "extra"}}}}
        transforms {shift {p: 1}}}}"""
    lengths = """fields {key: "n" value {
        source: "sound" row_field: ROW_FIELD_LENGTHS crop {length: 7}
        transforms {mel_spectrogram {n_fft: 4 n_mels: 1}}}}"""
    add("open_noise", 0, encode("OpenFeedRequest", f"""options {{
        dataset: "s" batch_size: 4 field_names: "sound" field_names: "n"
        {noise} {lengths}}}"""))
    add("explain_noise", 1, encode("ExplainTransformsRequest", f"""
        dataset: "s" {noise} seed: 1 indices: [0, 5]"""))
    fixed = _PIPELINES["fixed"]
    add("load", 2, encode("LoadDatasetRequest", f"""spec {{
        name: "b" format: "cifar10" path: "/d" split: "test" device: "cpu"
        pretransforms {{key: "image" value {{{fixed}}}}}
        options {{key: "k" value: "v"}} private: true}}"""))
    add("load_skip", 2, encode("LoadDatasetRequest", """spec {
        name: "b" format: "images" path: "/d"
        bad_samples: BAD_SAMPLE_POLICY_SKIP max_bad_samples: 3}"""))
    header = encode("PushHeader", """name: "b" num_samples: 3
        fields {name: "image" dtype: DTYPE_UINT8 shape: [2, 2, 3]
                is_image: true}
        fields {name: "label" dtype: DTYPE_INT64}
        pretransforms {key: "image" value {transforms {
            resize {size {height: 3 width: 3}}}}} class_names: "x" """)
    samples = b"".join(bytes([19]) + bytes(19) for _ in range(3))
    add("push", 3, struct.pack(">H", len(header)) + header + samples)
    add("push_short", 3, struct.pack(">H", len(header)) + header + samples[:30])
    add("indices", 4, encode("SendIndicesRequest", """
        feed_id: 1 start {epoch: 0 batch: 0} batch_sizes: [3, 1, 2]
        indices: [0, 5, 11, 3, 3, 2]"""))
    add("indices_later", 4, encode("SendIndicesRequest", """
        feed_id: 1 generation: 4 start {epoch: 9 batch: 7} first_row: 21
        batch_sizes: 3 indices: [0, 11, 1]"""))
    add("indices_wrong", 4, encode("SendIndicesRequest", """
        feed_id: 1 batch_sizes: 3 indices: [0, 12, -1]"""))
    add("read", 6, encode("ReadSamplesRequest", f"""
        indices: [11, 0, 0] seed: 3 epoch: 2 field_names: ["label", "image"]
        fields {{key: "image" value {{{fixed} layout: LAYOUT_NHWC}}}}"""))
    windows = """length: 3 random {num_windows: 5}"""
    add("read_windows", 6, encode("ReadSamplesRequest", f"""
        indices: [7, 8] field_names: "label" window_order {{{windows}}}"""))
    add("explain_windows", 1, encode("ExplainTransformsRequest", f"""
        fields {{key: "label"}} indices: 4294967295
        window_order {{{windows}}}"""))
    add("read_wrong", 6, encode("ReadSamplesRequest", "indices: [0, 12, -1]"))
    weights = struct.pack("<12d", 0, 1, 2, 0, 4, 5, 6, 7, 8, 9, 10, 0)
    add("weights", 5, b"\0" + weights)
    add("weights_wrong", 5, b"\0" + struct.pack(
        "<12d", 1, -1, float("nan"), float("inf"), *[1e308] * 8))
    add("weights_listed", 5, b"\1" + struct.pack("<4q", 3, 3, 11, 0))
    add("weights_listed_wrong", 5, b"\1" + struct.pack("<2q", 3, 12))
    add("subset", 5, b"\2" + struct.pack("<3q", 11, 0, 3))
    add("subset_wrong", 5, b"\2" + struct.pack("<3q", 11, 0, 11))


def main(out):
    write_requests(out)
    # Commands of ring_fuzz: kind + 9 * argument.
    launch, complete, scan = b"\x06", b"\x07", b"\x04"
    fill = (launch + complete) * 3
    release = bytes([2, 2 + 9, 2 + 18]) + scan
    write(out, "ring", "serves", b"\x01" + (fill + release) * 6)
    write(out, "ring", "seeks",
          b"\x02" + (fill + b"\x03\x01\x05\x01" + scan + release) * 3 +
          b"\x03\x02\xff\x04" + scan + fill)
    write(out, "ring", "words",
          b"\x03" + fill + b"".join(
              b"\x00" + struct.pack(">H", offset) + struct.pack("<Q", word) +
              scan for offset, word in ((512, 1), (520, 2**64 - 1), (0, 7),
                                        (1024, 1), (4088, 2**63))) + fill)
    write(out, "ring", "near_releases",
          b"\x02" + fill + bytes([1, 3, 10, 2, 19, 5]) + scan + fill)
    block = b"\x08\x00\x00\x00\x02" + b"\x02\x07\x07" + b"\x01\x09"
    seek = b"\x08\x01\x02\x03\x01" + b"\x01\x04"
    bad = b"\x08\x00\x00\x02\x01" + b"\x02\x01\xff"
    write(out, "ring", "order",
          b"\x81" + block + fill + bad + release + seek + fill + release)

    # Commands of attach_fuzz: kind + 16 * connection.
    hello, lease, import_ok = b"\x03", b"\x15", b"\x18\x01\x00"
    write(out, "attach", "session", hello + b"\x0f")
    write(out, "attach", "lease", hello + lease + import_ok + b"\x1a")
    write(out, "attach", "closing",
          hello + lease + import_ok + b"\x19" + b"\x1d" + b"\x1a" + b"\x0f")
    write(out, "attach", "lost", hello + lease + b"\x0f" + import_ok + b"\x1f")
    write(out, "attach", "import_failed",
          hello + lease + b"\x18\x00\x05wrong" + b"\x1d")
    write(out, "attach", "guesses", hello + b"\x17\x03\x01\x01" +
          b"\x27\x00\x00\x02" + b"\x1d\x2d")
    write(out, "attach", "garbage", b"\x00\x20" + bytes(32) + b"\x12" +
          bytes(range(200)) + b"\x2b\x03\x00" + b"\x3c\x04")
    # A right array, one that is too large, one without seals, two.
    for name, how in (("array", 0), ("array_size", 1), ("array_seals", 4),
                      ("array_twice", 8 + 2 * 16)):
        write(out, "attach", name,
              hello + b"\x1e" + bytes([how, 4, 2, 7]) + import_ok + b"\x1a")
    # Other weights, right and wrong, of a weighted feed; twice at once; before
    # there is a lease, and of a feed without weights.
    weights = bytes(range(1, 11))
    weighted = hello + b"\x16\0" + weights + import_ok
    for name, how in (("weights", 0), ("weights_size", 1),
                      ("weights_seals", 4), ("weights_twice", 8 + 2 * 16)):
        write(out, "attach", name, weighted + b"\x11" + bytes([how])
              + weights + b"\x1d\x1a")
    write(out, "attach", "weights_at_once",
          weighted + 2 * (b"\x11\0" + weights) + b"\x1f")
    write(out, "attach", "weights_of_none", b"\x11\0" + weights + hello
          + lease + import_ok + b"\x11\0" + weights + b"\x19\x11\0" + weights)
    write(out, "attach", "twice", hello + hello + lease + lease + b"\x25")


if __name__ == "__main__":
    main(sys.argv[1])
