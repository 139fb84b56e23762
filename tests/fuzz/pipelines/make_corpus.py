"""Writes the corpus of pipeline_fuzz: an input for each op, and those that made
sizes overflow. Run in this folder: python3 make_corpus.py"""

import os
import struct

LOAD, MASK, NHWC = 1, 2, 4
UINT8, FLOAT16, BFLOAT16, FLOAT32 = 0, 8, 16, 24
DENSE, RAGGED, HUGE = 0, 32, 64


def number(value):
    """As Reader::Number takes any number of 32 bits."""
    return struct.pack(">Bi", 255, value)


def image(bits=0, channels=3, sizes=bytes([11, 16])):
    return bytes([bits, channels - 1, 4]) + sizes


RESIZE = bytes([9, 1, 7, 89, 2, 1])  # 7x9, bilinear, antialias
CENTER_CROP = bytes([2, 88, 88])  # 80 + 8
TO_FLOAT = bytes([40, 9, 1])
NORMALIZE = bytes([41, 1, 32, 1, 32])

OPS = {
    "pad": bytes([0, 1, 2, 3, 4, 2, 0]),
    "crop": bytes([1, 2, 3, 5, 6]),
    "center_crop": CENTER_CROP,
    "random_crop": bytes([3, 92, 92, 1, 2, 2, 2, 2, 1, 1]),
    "flips": bytes([4, 5, 6, 32, 7, 32, 8]),
    "resize": RESIZE,
    "resize_edge": bytes([9, 0, 100, 120, 3, 1]),
    "resize_nearest": bytes([10, 1, 110, 5, 0, 0]),
    "resized_crop": bytes([11, 1, 2, 6, 6, 89, 89, 3, 1]),
    "random_resized_crop": bytes([12, 90, 90, 0, 0, 2, 1]),
    "rotate": bytes([13, 40, 2, 1, 0, 0]),
    "random_rotation": bytes([14, 10, 1, 40, 2, 0]),
    "affine": bytes([15, 20, 3, 4, 64, 1, 2, 2, 0, 0]),
    "random_affine": bytes([16, 10, 1, 40, 1, 9, 9, 0, 0, 0, 2, 0]),
    "colour_jitter": bytes([17, 1, 20, 1, 40, 1, 20, 1, 40, 1, 20, 1, 40, 0]),
    "brightness": bytes([18, 70]),
    "contrast": bytes([19, 70]),
    "saturation": bytes([20, 70]),
    "hue": bytes([21, 10]),
    "grayscale": bytes([22, 3, 23, 32]),
    "invert": bytes([24, 25, 32]),
    "posterize": bytes([26, 3, 27, 2, 32]),
    "solarize": bytes([28, 64, 29, 64, 32]),
    "sharpness": bytes([30, 70]),
    "statistics": bytes([31, 32, 64]),
    "blur": bytes([33, 5, 7, 20, 1, 40]),
    "erase": bytes([34, 1, 2, 5, 5, 1, 64]),
    "random_erasing": bytes([35, 64, 5, 1, 20, 30, 1, 90, 1]),
    "cutout": bytes([36, 6, 1, 9]),
    "random_apply": bytes([37, 32, 2, 18, 70, 24]),
    "mixup": bytes([38, 64, 90, 1]),
    "cutmix": bytes([39, 64, 90, 0]),
    "numbers": TO_FLOAT + NORMALIZE,
    # 3 ops of magnitude 9 of 31; 1 of 3 of 4, with a fill.
    "rand_augment": bytes([42, 83, 89, 111, 0, 0, 42, 81, 83, 84, 2, 1, 1, 9]),
    "trivial_augment": bytes([43, 111, 0, 0, 43, 82, 2, 1, 1, 64]),
    "auto_augment": bytes([44, 0, 0, 0, 44, 1, 2, 0, 44, 2, 2, 1, 1, 9]),
    "perspective": bytes([45, 32, 64, 2, 0, 45, 64, 64, 0, 1, 1, 9]),
    "gaussian_noise": TO_FLOAT + bytes([46, 0, 8, 1, 46, 16, 64, 0]),
}


def main():
    inputs = {}
    ragged = bytes([2, 11, 16, 20, 9, 5, 31])
    for name, op in OPS.items():
        inputs[name] = image() + op
        inputs["load_" + name] = image(LOAD | FLOAT32) + op + RESIZE
        inputs["ragged_" + name] = (image(RAGGED | NHWC, sizes=ragged) + op +
                                    CENTER_CROP)
        inputs["chain_" + name] = (image(FLOAT16, channels=1) + bytes([30, 70]) +
                                   op + RESIZE)
    bicubic = bytes([9, 1, 1, 1, 3, 1])
    bilinear = bytes([9, 1, 1, 1, 2, 1])
    # The first side is 4096: a byte makes it another one.
    for name, op in (("bicubic", bicubic), ("bilinear", bilinear),
                     ("crop", OPS["crop"]), ("pad", OPS["pad"])):
        for bits in (HUGE, HUGE | LOAD):
            inputs[f"huge_{name}_{bits}"] = image(bits, 1, bytes([0, 0])) + op
            inputs[f"huge_wide_{name}_{bits}"] = (
                image(bits, 1, bytes([0, 130])) + op)
    # Twice the filter's reach is beyond 2^31: the number of taps was negative.
    tall = bytes([8, 0])  # 2^29 + 1
    inputs["tap_overflow"] = image(HUGE, 1, tall) + bicubic
    inputs["tap_overflow_load"] = image(HUGE | LOAD, 1, tall) + bicubic
    inputs["tap_overflow_pad"] = (
        image(0, 1, bytes([0, 0])) + bytes([0, 0, 0, 0]) + number(2**29) +
        bytes([0, 0]) + bicubic)
    # Taps of 2^30 rows, for as many rows: the bytes wrapped around.
    tall = bytes([9, 0])  # 2^30 - 1
    inputs["scratch_overflow"] = image(HUGE, 1, tall) + bilinear
    inputs["scratch_overflow_load"] = image(HUGE | LOAD, 1, tall) + bilinear
    os.makedirs("corpus", exist_ok=True)
    for name, data in inputs.items():
        with open(os.path.join("corpus", name), "wb") as file:
            file.write(data)


main()
