"""Writes images, and what PIL makes of them; for make_reader_data.py.

  OUT/image_codec/<name>               an image
  OUT/image_codec/<name>.<C>.expected  its pixels of C channels
  OUT/image_codec/index.json           {name: {"size": [H, W], "exif": bool,
                                        "channels": of the file}}

What PIL cannot write is written here from the formats' descriptions; what it
cannot convert as we want to (grey of 16 bits) is expected from numpy.
"""

import io
import json
import os
import struct
import warnings
import zlib

import numpy as np
from PIL import Image, ImageOps

RNG = np.random.default_rng(20240301)
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def picture(height, width, channels=3):
    """Smooth colours, edges and some noise, as photographs have them."""
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for c in range(channels):
        wave = np.sin(x / (7 + 3 * c)) + np.cos(y / (5 + 2 * c))
        planes.append(127 + 50 * wave + 40 * ((x // 9 + y // 11) % 2))
    noise = RNG.normal(0, 6, (height, width, channels))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


def image(height, width, mode="RGB"):
    if mode == "LA":
        return Image.fromarray(picture(height, width, 2), "LA")
    if mode == "P":
        return image(height, width).quantize(60)
    return Image.fromarray(picture(height, width)).convert(mode)


def saved(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def exif(orientation, order="II"):
    mark = "<" if order == "II" else ">"
    return (order.encode() + struct.pack(mark + "HIH", 42, 8, 2) +
            struct.pack(mark + "HHII", 0x0100, 4, 1, 7) +
            struct.pack(mark + "HHIHH", 0x0112, 3, 1, orientation, 0) +
            struct.pack(mark + "I", 0))


def png_chunk(kind, data):
    return (struct.pack(">I", len(data)) + kind + data +
            struct.pack(">I", zlib.crc32(kind + data)))


def png(samples, bit_depth, color_type, extra=b"", is_interlaced=False):
    """`samples` are integers [H, W, C]."""
    height, width, _ = samples.shape

    def rows(block):
        out = b""
        for row in block:
            if bit_depth == 16:
                packed = row.astype(">u2").tobytes()
            elif bit_depth == 8:
                packed = row.astype(np.uint8).tobytes()
            else:
                bits = "".join(format(int(v), "0%db" % bit_depth)
                               for v in row.ravel())
                bits += "0" * (-len(bits) % 8)
                packed = int(bits, 2).to_bytes(len(bits) // 8, "big")
            out += b"\0" + packed
        return out

    data = b""
    if is_interlaced:
        for y, x, dy, dx in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4),
                             (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
                             (1, 0, 2, 1)):
            block = samples[y::dy, x::dx]
            if block.size:
                data += rows(block)
    else:
        data = rows(samples)
    header = struct.pack(">IIBBBBB", width, height, bit_depth, color_type, 0,
                         0, int(is_interlaced))
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + extra +
            png_chunk(b"IDAT", zlib.compress(data)) + png_chunk(b"IEND", b""))


def bmp(width, height, bits, rows, compression=0, masks=(), palette=b"",
        colors=0, is_core=False, header_bytes=40):
    if is_core:
        header = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        header = struct.pack("<IiiHHIIiiII", header_bytes, width, height, 1,
                             bits, compression, len(rows), 0, 0, colors, 0)
        header += b"".join(struct.pack("<I", mask) for mask in masks)
        if header_bytes > 40:
            header += bytes(header_bytes - len(header))
    offset = 14 + len(header) + len(palette)
    return (b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) +
            header + palette + rows)


def bmp_rows(rows):
    return b"".join(row + bytes(-len(row) % 4) for row in rows)


def jpegs():
    for name, size in (("1x1", (1, 1)), ("2x3", (2, 3)), ("17x31", (17, 31)),
                       ("375x500", (375, 500))):
        yield "jpeg_" + name, saved(image(*size), "JPEG"), 3
    for quality in (1, 30, 95, 100):
        for subsampling in (0, 1, 2):
            yield ("jpeg_q%d_s%d" % (quality, subsampling),
                   saved(image(77, 123), "JPEG", quality=quality,
                         subsampling=subsampling), 3)
    yield ("jpeg_progressive",
           saved(image(77, 123), "JPEG", progressive=True), 3)
    yield ("jpeg_progressive_grey",
           saved(image(77, 123, "L"), "JPEG", progressive=True), 1)
    yield "jpeg_optimized", saved(image(77, 123), "JPEG", optimize=True), 3
    yield "jpeg_grey", saved(image(45, 67, "L"), "JPEG"), 1
    yield "jpeg_cmyk", saved(image(45, 67, "CMYK"), "JPEG"), 3


def pngs():
    for mode, channels in (("1", 1), ("L", 1), ("LA", 2), ("RGB", 3),
                           ("RGBA", 4), ("P", 3)):
        yield "png_" + mode, saved(image(45, 67, mode), "PNG"), channels
    yield "png_1x1", saved(image(1, 1), "PNG"), 3
    yield "png_rgba_fades", png(picture(9, 14, 4), 8, 6), 4
    for bits in (1, 2, 4):
        grey = picture(13, 21, 1) >> (8 - bits)
        yield "png_grey%d" % bits, png(grey, bits, 0), 1
        palette = png_chunk(b"PLTE", RNG.bytes(3 << bits))
        yield "png_palette%d" % bits, png(grey, bits, 3, palette), 3
        yield ("png_palette%d_interlaced" % bits,
               png(grey, bits, 3, palette, True), 3)
    palette = png_chunk(b"PLTE", RNG.bytes(768))
    alpha = png_chunk(b"tRNS", RNG.bytes(100))
    yield ("png_palette_alpha",
           png(picture(13, 21, 1), 8, 3, palette + alpha), 4)
    color = picture(13, 21)
    transparent = png_chunk(b"tRNS", struct.pack(">HHH", *color[3, 4]))
    yield "png_transparent_color", png(color, 8, 2, transparent), 3
    grey = picture(13, 21, 1)
    transparent = png_chunk(b"tRNS", struct.pack(">H", grey[3, 4, 0]))
    yield "png_transparent_grey", png(grey, 8, 0, transparent), 1
    for size in ((1, 1), (3, 2), (13, 21), (64, 64)):
        yield ("png_interlaced_%dx%d" % size,
               png(picture(*size), 8, 2, is_interlaced=True), 3)
    yield ("png_interlaced_grey_alpha",
           png(picture(13, 21, 2), 8, 4, is_interlaced=True), 2)
    wide = RNG.integers(0, 65536, (9, 14, 4))
    yield "png_rgb16", png(wide[..., :3], 16, 2), 3
    yield "png_rgba16", png(wide, 16, 6), 4
    yield "png_texts", png(
        color, 8, 2, b"".join(
            png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(1 << 20)))
            for _ in range(20))), 3


def bmps():
    for mode, channels in (("1", 1), ("L", 1), ("RGB", 3), ("P", 3)):
        yield "bmp_" + mode, saved(image(45, 67, mode), "BMP"), channels
    yield "bmp_RGBA", saved(image(5, 7, "RGBA"), "BMP"), 3
    color = picture(11, 9)
    bgr = [row[:, ::-1].tobytes() for row in color]
    yield "bmp_top_down", bmp(9, -11, 24, bmp_rows(bgr)), 3
    yield "bmp_core", bmp(9, 11, 24, bmp_rows(bgr[::-1]), is_core=True), 3
    pixels = RNG.integers(0, 65536, (11, 9), dtype=np.uint16)
    rows = bmp_rows([row.tobytes() for row in pixels])
    yield "bmp_555", bmp(9, 11, 16, rows), 3
    yield "bmp_565", bmp(9, 11, 16, rows, 3, (0xF800, 0x7E0, 0x1F)), 3
    pixels = RNG.integers(0, 2**32, (11, 9), dtype=np.uint32)
    rows = bmp_rows([row.tobytes() for row in pixels])
    yield "bmp_32", bmp(9, 11, 32, rows), 3
    yield "bmp_32_alpha", bmp(
        9, 11, 32, rows, 3, (0xFF0000, 0xFF00, 0xFF, 0xFF000000),
        header_bytes=108), 4
    palette = RNG.bytes(4 * 16)
    nibbles = RNG.bytes(5 * 11)
    rows = bmp_rows([nibbles[5 * i:5 * i + 5] for i in range(11)])
    yield "bmp_palette4", bmp(9, 11, 4, rows, palette=palette), 3


def turned():
    for orientation in range(1, 9):
        for order in ("II", "MM"):
            data = exif(orientation, order)
            yield ("exif_%d_%s_jpeg" % (orientation, order),
                   saved(image(17, 31), "JPEG", exif=b"Exif\0\0" + data), 3)
        yield ("exif_%d_png" % orientation,
               saved(image(17, 31), "PNG", exif=data), 3)


def write(directory, name, data, native, is_turned, index, pixels=None):
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)
    for channels, mode in MODES.items():
        if pixels is None:
            opened = Image.open(io.BytesIO(data))
            if is_turned:
                opened = ImageOps.exif_transpose(opened)
            expected = np.asarray(opened.convert(mode))
        else:
            expected = np.asarray(Image.fromarray(pixels).convert(mode))
        with open(os.path.join(directory, "%s.%d.expected" % (name, channels)),
                  "wb") as file:
            file.write(expected.tobytes())
    index[name] = {"size": list(expected.shape[:2]), "exif": is_turned,
                   "channels": native}


def codec_cases(out):
    directory = os.path.join(out, "image_codec")
    os.makedirs(directory, exist_ok=True)
    index = {}
    for cases in (jpegs(), pngs(), bmps()):
        for name, data, channels in cases:
            write(directory, name, data, channels, False, index)
    for name, data, channels in turned():
        write(directory, name, data, channels, True, index)
    grey = RNG.integers(0, 65536, (9, 14, 1))
    high = (grey[..., 0] >> 8).astype(np.uint8)
    write(directory, "png_grey16", png(grey, 16, 0), 1, False, index, high)
    write(directory, "png_grey16_interlaced",
          png(grey, 16, 0, is_interlaced=True), 1, False, index, high)
    with open(os.path.join(directory, "index.json"), "w") as file:
        json.dump(index, file)


def ragged_field(case, pixels):
    """Samples of any size, one after the other; the first one's shape."""
    with open(os.path.join(case.directory, "image.expected"), "wb") as file:
        for array in pixels:
            file.write(array.tobytes())
    case.expected["num_samples"] = len(pixels)
    case.expected["fields"].append(
        {"name": "image", "dtype": "uint8", "shape": list(pixels[0].shape),
         "is_image": True, "is_ragged": True})


def rgb(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


# In the order of torchvision.datasets.ImageFolder.
FOLDER = [
    ("Zebra/a.jpg", "JPEG", {}),
    ("ant/1.png", "PNG", {}),
    ("ant/10.JPEG", "JPEG", {"progressive": True}),
    ("ant/2.bmp", "BMP", {}),
    ("ant/sub/b.jpg", "JPEG", {"subsampling": 0}),
    ("ant/sub-x/c.jpg", "JPEG", {"quality": 50}),
    ("ant/sub/deeper/d.jpg", "JPEG", {}),
    ("bee/only.png", "PNG", {}),
]


def folder_case(out, name, split, options):
    from make_reader_data import Case
    case = Case(out, name, "image_folder", split, options, split)
    pixels = []
    for i, (path, kind, how) in enumerate(FOLDER):
        data = saved(image(11 + 3 * i, 30 - 2 * i), kind, **how)
        case.source(path, data)
        pixels.append(rgb(data))
    case.source("ant/notes.txt", b"no image", is_listed=False)
    case.source("README", b"no class", is_listed=False)
    case.expected["class_names"] = ["Zebra", "ant", "bee"]
    ragged_field(case, pixels)
    labels = np.array([0, 1, 1, 1, 1, 1, 1, 2], np.int64)
    case.field("label", labels, "int64", [], False)
    case.close()


def csv_case(out, name, lines, labels, class_names, options):
    from make_reader_data import Case
    case = Case(out, name, "image_csv", options=options)
    case.expected["path"] = "list.csv"
    case.source("list.csv", lines)
    pixels = []
    for i, path in enumerate(("x/1.jpg", "x/2.png", 'a, "b".bmp')):
        data = saved(image(20 - i, 17 + i), ("JPEG", "PNG", "BMP")[i])
        case.source(path, data)
        pixels.append(rgb(data))
    case.expected["class_names"] = class_names
    ragged_field(case, pixels)
    case.field("label", np.array(labels, np.int64), "int64", [], False)
    case.close()


def main(out):
    # No damaged header makes more pixels than the suite has memory for.
    options = {"max_pixels": "100000"}
    folder_case(out, "image_folder", "", options)
    folder_case(out, "image_folder_split", "train", options)
    csv_case(out, "image_csv", b'x/1.jpg,7\n\nx/2.png,0\r\n'
             b'"a, ""b"".bmp",300', [7, 0, 300], [], options)
    csv_case(out, "image_csv_header",
             b'\xef\xbb\xbfpath,who,class\nx/1.jpg,1,cat\n'
             b'x/2.png,2,"big, ant"\n"a, ""b"".bmp",3,cat\n',
             [1, 0, 1], ["big, ant", "cat"],
             dict(options, label_column="class"))
    warnings.simplefilter("ignore")  # PIL's advice
    codec_cases(out)
