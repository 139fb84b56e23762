"""Writes the corpus of pipeline_fuzz: an input for each op, and those that made
sizes overflow. Run in this folder: python3 make_corpus.py"""

import os
import re
import struct

LOAD, MASK, NHWC = 1, 2, 4
UINT8, FLOAT16, BFLOAT16, FLOAT32 = 0, 8, 16, 24
DENSE, RAGGED, HUGE = 0, 32, 64


def messages():
    """Returns the fields of the messages of transform.proto, in their order: by
    the message's name (label, type, name). Those of a oneof are optional."""
    with open("../../../proto/datasetd/v1/transform.proto") as file:
        text = re.sub(r"//.*", "", file.read())
    found = {}
    for name, body in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.S):
        oneofs = "".join(re.findall(r"oneof \w+ \{(.*?)\}", body, re.S))
        found[name] = [
            ("optional" if f" {field} =" in oneofs else label.strip(), kind,
             field) for label, kind, field in re.findall(
                r"^ +(repeated |optional |)([\w.]+) (\w+) = \d+", body, re.M)]
    return found


MESSAGES = messages()


def number(value):
    """As Reader::Number takes it."""
    if 0 <= value < 8:
        return bytes([value])
    return (bytes([80 + value]) if 0 <= value < 80
            else struct.pack(">Bi", 255, value))


def real(value):
    """A number below 2, in steps of 1/64."""
    return bytes([round(64 * value)])


def encoded(kind, value):
    """A value of a field, as ReadFields takes it; an enum by its place."""
    if kind == "string":
        return b""
    if kind in ("double", "float"):
        return real(value or 0)
    if kind == "Range":
        return real(value[0]) + b"\1" + real(value[1] - value[0])
    if kind == "Transform":
        return op(*value)
    if kind not in MESSAGES:
        return number(int(value or 0))
    given = dict(value)
    data = b""
    for label, of_field, name in MESSAGES[kind]:
        part = given.pop(name, None)
        if label == "repeated":
            data += bytes([len(part or ())])
            data += b"".join(encoded(of_field, one) for one in part or ())
            continue
        if label == "optional" or of_field in MESSAGES:
            data += bytes([part is not None])
            if part is None:
                continue
        data += encoded(of_field, part)
    assert not given, (kind, given)
    return data


def op(name, **parameters):
    kinds = [(kind, field) for _, kind, field in MESSAGES["Transform"]]
    place = [field for _, field in kinds].index(name)
    return bytes([place]) + encoded(kinds[place][0], parameters)


def ops(*each):
    return b"".join(op(name, **parameters) for name, parameters in each)


def image(bits=0, channels=3, sizes=bytes([11, 16])):
    return bytes([bits, channels - 1, 4]) + sizes


NEAREST, BILINEAR, BICUBIC = 1, 3, 4
REFLECT, FLOAT = 3, 7
SIDES = {"left": 1, "top": 2, "right": 3, "bottom": 4}
FACTOR = 70 / 64


def size(height, width):
    return {"height": height, "width": width}


def point(x, y):
    return {"x": x, "y": y}


def box(top, left, height, width):
    return {"top": top, "left": left, "height": height, "width": width}


RESIZE = op("resize", size=size(7, 9), interpolation=BILINEAR, antialias=True)
CENTER_CROP = op("center_crop", **size(8, 8))
TO_FLOAT = op("to_dtype", dtype=FLOAT, scale=True)
NORMALIZE = op("normalize", mean=[0.5], std=[0.5])
SHARPNESS = op("adjust_sharpness", sharpness_factor=FACTOR)

OPS = {
    "pad": op("pad", padding=SIDES, padding_mode=REFLECT),
    "crop": op("crop", **box(2, 3, 5, 6)),
    "center_crop": CENTER_CROP,
    "random_crop": op("random_crop", **size(12, 12), padding=SIDES,
                      pad_if_needed=True, padding_mode=2),
    "flips": ops(("horizontal_flip", {}), ("vertical_flip", {}),
                 ("random_horizontal_flip", {"p": 0.5}),
                 ("random_vertical_flip", {"p": 0.5}), ("alternating_flip", {})),
    "resize": RESIZE,
    "resize_edge": op("resize", shorter_edge=20, max_size=40,
                      interpolation=BICUBIC, antialias=True),
    "resize_nearest": op("resize", size=size(30, 5), interpolation=NEAREST),
    "resized_crop": op("resized_crop", **box(1, 2, 6, 6), size=size(9, 9),
                       interpolation=BICUBIC, antialias=True),
    "random_resized_crop": op("random_resized_crop", size=size(10, 10),
                              interpolation=BILINEAR, antialias=True),
    "rotate": op("rotate", angle=0.6, interpolation=BILINEAR, expand=True),
    "random_rotation": op("random_rotation", degrees=(0.2, 0.8),
                          interpolation=BILINEAR),
    "affine": op("affine", angle=0.3, translate=point(0.1, 0.1), scale=1,
                 shear=point(0.1, 0.1), interpolation=BILINEAR),
    "random_affine": op("random_affine", degrees=(0.2, 0.8),
                        translate=point(0.2, 0.2), interpolation=BILINEAR),
    "colour_jitter": op("color_jitter", brightness=(0.3, 1), contrast=(0.3, 1),
                        saturation=(0.3, 1)),
    "brightness": op("adjust_brightness", brightness_factor=FACTOR),
    "contrast": op("adjust_contrast", contrast_factor=FACTOR),
    "saturation": op("adjust_saturation", saturation_factor=FACTOR),
    "hue": op("adjust_hue", hue_factor=0.2),
    "grayscale": ops(("grayscale", {"num_output_channels": 3}),
                     ("random_grayscale", {"p": 0.5})),
    "invert": ops(("invert", {}), ("random_invert", {"p": 0.5})),
    "posterize": ops(("posterize", {"bits": 3}),
                     ("random_posterize", {"bits": 2, "p": 0.5})),
    "solarize": ops(("solarize", {"threshold": 1}),
                    ("random_solarize", {"threshold": 1, "p": 0.5})),
    "sharpness": SHARPNESS + op("random_adjust_sharpness", p=0.5,
                                sharpness_factor=FACTOR),
    "statistics": ops(("autocontrast", {}), ("equalize", {}),
                      ("random_autocontrast", {}), ("random_equalize", {"p": 1})),
    "blur": op("gaussian_blur", kernel_size=size(5, 7), sigma=(0.3, 1)),
    "erase": op("erase", **box(1, 2, 5, 5), value=[1]),
    "random_erasing": op("random_erasing", p=1, scale=(0.1, 0.4),
                         ratio=(0.5, 1.5), is_value_random=True),
    "cutout": op("cutout", size=6, fill=[0.1]),
    "random_apply": op("random_apply", p=0.5, transforms=[("invert",),
                                                         ("autocontrast",)]),
    "mixup": op("mix_up", alpha=1, num_classes=10, per_sample=True),
    "cutmix": op("cut_mix", alpha=1, num_classes=10),
    "numbers": TO_FLOAT + NORMALIZE,
    "rand_augment": ops(
        ("rand_augment", {"num_ops": 3, "magnitude": 9,
                          "num_magnitude_bins": 31}),
        ("rand_augment", {"num_ops": 1, "magnitude": 3, "num_magnitude_bins": 4,
                          "interpolation": BILINEAR, "fill": [0.1]})),
    "trivial_augment": ops(
        ("trivial_augment_wide", {"num_magnitude_bins": 31}),
        ("trivial_augment_wide", {"num_magnitude_bins": 2, "fill": [1],
                                  "interpolation": BILINEAR})),
    "auto_augment": ops(*(("auto_augment", {"policy": policy})
                          for policy in (1, 2, 3))),
    "perspective": ops(
        ("random_perspective", {"distortion_scale": 0.5, "p": 1,
                                "interpolation": BILINEAR}),
        ("random_perspective", {"distortion_scale": 1, "p": 1, "fill": [0.1]})),
    "gaussian_noise": TO_FLOAT + ops(
        ("gaussian_noise", {"sigma": 0.1, "clip": True}),
        ("gaussian_noise", {"mean": 0.2, "sigma": 1, "clip": False})),
}


INT16, FLOAT32_FIELD = 1, 6  # less one
SEQUENCES = {
    "waveform": (FLOAT32_FIELD, [99, 2], ops(
        ("vol", {"gain": 0.5, "gain_type": 2}),
        ("gain", {"min_gain_in_db": 0.5, "max_gain_in_db": 1, "p": 1}),
        ("polarity_inversion", {"p": 0.5}),
        ("shift", {"min_shift": 0.1, "max_shift": 0.5, "shift_unit": 1,
                   "rollover": False, "p": 1}))),
    # After an op its noise: dtype, bits, a count, steps.
    "packed_noise": (FLOAT32_FIELD, [99, 2], op(
        "add_noise", snr=(0, 1), p=1) + bytes([INT16, 1, 2, 0, 30, 200])),
    "stereo_noise": (FLOAT32_FIELD, [40, 2], op(
        "add_noise", p=0.5) + bytes([FLOAT32_FIELD, 4 | 32, 1, 39])),
    "wrong_noise": (FLOAT32_FIELD, [40, 2], op("add_noise") +
                    bytes([FLOAT32_FIELD, 8 | 32, 1, 39])),
    "spectrogram": (INT16, [99, 2], TO_FLOAT + ops(
        ("mel_spectrogram", {"n_fft": 30, "hop_length": 7, "n_mels": 5,
                             "power": 1, "normalized": True, "center": True,
                             "pad_mode": 3, "norm": 2, "mel_scale": 2}),
        ("amplitude_to_db", {"stype": 2, "top_db": 1}),
        ("time_masking", {"time_mask_param": 5, "iid_masks": True, "p": 0.5}),
        ("frequency_masking", {"freq_mask_param": 3, "mask_value": 1}))),
    "odd_frames": (FLOAT32_FIELD, [200], op(
        "mel_spectrogram", n_fft=21, hop_length=10, n_mels=3, power=1.5, pad=3,
        f_min=1)),
    "masks": (FLOAT32_FIELD, [9, 7], NORMALIZE + ops(
        ("time_masking", {"time_mask_param": 9, "p": 1}),
        ("random_apply", {"p": 0.5, "transforms": [("amplitude_to_db",)]}))),
    "scaled": (INT16, [], TO_FLOAT),
    "image_op": (FLOAT32_FIELD, [9, 7], op("invert")),
}


def sequence(dtype, shape):
    return bytes([RAGGED | HUGE, 0, 4, dtype, len(shape),
                  *(extent - 1 for extent in shape)])


def main():
    inputs = {name: sequence(dtype, shape) + data
              for name, (dtype, shape, data) in SEQUENCES.items()}
    ragged = bytes([2, 11, 16, 20, 9, 5, 31])
    for name, data in OPS.items():
        inputs[name] = image() + data
        inputs["load_" + name] = image(LOAD | FLOAT32) + data + RESIZE
        inputs["ragged_" + name] = (image(RAGGED | NHWC, sizes=ragged) + data +
                                    CENTER_CROP)
        inputs["chain_" + name] = (image(FLOAT16, channels=1) + SHARPNESS +
                                   data + RESIZE)
    bicubic, bilinear = (
        op("resize", size=size(1, 1), interpolation=mode, antialias=True)
        for mode in (BICUBIC, BILINEAR))
    # The first side is 4096: a byte makes it another one.
    for name, data in (("bicubic", bicubic), ("bilinear", bilinear),
                       ("crop", OPS["crop"]), ("pad", OPS["pad"])):
        for bits in (HUGE, HUGE | LOAD):
            inputs[f"huge_{name}_{bits}"] = image(bits, 1, bytes([0, 0])) + data
            inputs[f"huge_wide_{name}_{bits}"] = (
                image(bits, 1, bytes([0, 130])) + data)
    # Twice the filter's reach is beyond 2^31: the number of taps was negative.
    tall = bytes([8, 0])  # 2^29 + 1
    inputs["tap_overflow"] = image(HUGE, 1, tall) + bicubic
    inputs["tap_overflow_load"] = image(HUGE | LOAD, 1, tall) + bicubic
    inputs["tap_overflow_pad"] = (
        image(0, 1, bytes([0, 0])) + op("pad", padding={"bottom": 2**29}) +
        bicubic)
    # Taps of 2^30 rows, for as many rows: the bytes wrapped around.
    tall = bytes([9, 0])  # 2^30 - 1
    inputs["scratch_overflow"] = image(HUGE, 1, tall) + bilinear
    inputs["scratch_overflow_load"] = image(HUGE | LOAD, 1, tall) + bilinear
    # A sample of 750 MB.
    inputs["too_large_sample"] = image(
        LOAD | FLOAT32, 3, bytes([11, 35])) + op(
            "pad", padding={**SIDES, "left": 2**22 + 256}, padding_mode=2)
    os.makedirs("corpus", exist_ok=True)
    for name, data in inputs.items():
        with open(os.path.join("corpus", name), "wb") as file:
            file.write(data)


main()
