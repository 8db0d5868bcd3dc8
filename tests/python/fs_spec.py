"""Goal: fsspec finds images by URL. Method: its own open, copies and walks, beside its local file system."""

import filecmp
import os
import pickle
import unittest

import common
import fsspec

try:
    import numpy
except ImportError:
    numpy = None


class Spec(unittest.TestCase):
    """A fresh image for each test."""

    def setUp(self):
        scratch = common.scratch()
        self.directory = scratch.__enter__()
        self.addCleanup(scratch.__exit__, None, None, None)
        self.image = common.image(self.directory)
        self.url = f"bypath://{self.image}"
        self.addCleanup(fsspec.filesystem("bypath", image=self.image).clear_instance_cache)

    def test_registered(self):
        self.assertEqual(fsspec.get_filesystem_class("bypath").protocol, "bypath")

    def test_open_by_url(self):
        with fsspec.open(self.url + "/d/text", "w", auto_mkdir=True) as file:
            file.write("one\ntwo\n")
        with fsspec.open(self.url + "/d/text", "r") as file:
            self.assertEqual(file.readlines(), ["one\n", "two\n"])
        with fsspec.open(self.url + ":/d/text", "rb") as file:
            self.assertEqual(file.read(), b"one\ntwo\n")
        with fsspec.open(self.url + "/d/zip.gz", "w", compression="gzip") as file:
            file.write("packed")
        with fsspec.open(self.url + "/d/zip.gz", "r", compression="infer") as file:
            self.assertEqual(file.read(), "packed")
        with self.assertRaises(FileNotFoundError):
            fsspec.open("bypath:///none/such/image/f").open()
        files = fsspec.open_files(self.url + "/d/*", "rb")
        self.assertEqual(sorted(os.path.basename(file.path) for file in files), ["text", "zip.gz"])

    def test_as_the_local_one(self):
        results = []
        for fs, top in ((fsspec.filesystem("file"), os.path.join(self.directory, "local")), (fsspec.filesystem("bypath", image=self.image), "/top")):
            fs.makedirs(f"{top}/a/b", exist_ok=True)
            fs.pipe({f"{top}/a/1": b"one", f"{top}/a/b/2": b"two" * 1000})
            fs.touch(f"{top}/empty")
            fs.cp(f"{top}/a", f"{top}/copy", recursive=True)
            fs.mv(f"{top}/copy/1", f"{top}/copy/moved")
            fs.put_file(__file__, f"{top}/put")
            fs.get_file(f"{top}/put", os.path.join(self.directory, "got"))
            with self.assertRaises(FileNotFoundError):
                fs.info(f"{top}/none")
            with self.assertRaises(FileNotFoundError):
                fs.ls(f"{top}/none")
            with self.assertRaises(FileNotFoundError):
                fs.cat_file(f"{top}/none")
            with self.assertRaises(FileExistsError):
                fs.makedirs(f"{top}/a", exist_ok=False)
            fs.rm(f"{top}/copy/b", recursive=True)
            results.append(
                [
                    sorted((path.replace(top, ""), info["size"]) for path, info in fs.find(top, detail=True).items()),
                    sorted((path.replace(top, ""), sorted(dirs), sorted(files)) for path, dirs, files in fs.walk(top)),
                    sorted(path.replace(top, "") for path in fs.glob(f"{top}/**/?")),
                    fs.cat_file(f"{top}/a/b/2", 3, 9),
                    fs.cat_file(f"{top}/a/b/2", -3),
                    fs.cat_file(f"{top}/a/b/2", 2995, -1),
                    fs.cat_ranges([f"{top}/a/1", f"{top}/a/b/2"], [0, 1], [2, 5]),
                    (fs.isdir(f"{top}/a"), fs.isfile(f"{top}/a"), fs.exists(f"{top}/a/1"), fs.exists(f"{top}/a/none")),
                    (fs.du(top), fs.size(f"{top}/a/1"), fs.info(f"{top}/a")["type"], fs.info(f"{top}/a/1")["type"]),
                    sorted(name.replace(top, "") for name in fs.ls(f"{top}/a", detail=False)),
                    [name.replace(top, "") for name in fs.ls(f"{top}/a/1", detail=False)],
                    filecmp.cmp(os.path.join(self.directory, "got"), __file__, shallow=False),
                ]
            )
        self.assertEqual(*results)

    def test_urls_and_pickles(self):
        fs, path = fsspec.core.url_to_fs(self.url + "/d/f")
        self.assertEqual((fs.image, path, fs.unstrip_protocol(path)), (self.image, "/d/f", self.url + "/d/f"))
        fs.pipe_file("/f", b"text")
        self.assertEqual(pickle.loads(pickle.dumps(fs)).cat_file("/f"), b"text")
        with pickle.loads(pickle.dumps(fsspec.open(self.url + "/f"))) as file:
            self.assertEqual(file.read(), b"text")
        self.assertGreater(fs.modified("/f").year, 2000)

    @unittest.skipUnless(numpy, "numpy is not installed: LEFT OUT, not passed")
    def test_arrays_without_copies(self):
        import bypath

        numbers = numpy.arange(100000, dtype="int32")
        with fsspec.open(self.url + "/n.npy", "wb") as file:
            numpy.save(file, numbers)
        with fsspec.open(self.url + "/n.npy", "rb") as file:
            self.assertTrue((numpy.load(file) == numbers).all())
        with bypath.image(self.image) as fs:
            fs.write_bytes("/raw", numbers)
            mapped = numpy.frombuffer(fs.map("/raw"), dtype="int32")
            self.assertFalse(mapped.flags.owndata)
            self.assertTrue((mapped == numbers).all())
            del mapped
