#!/bin/sh
# needs: ghc runghc
# by name: half a gigabyte to install
# The compiler, its linker and its interpreter; the run-time locks the files it opens by itself.
cat >a.hs <<'HS'
import Control.Exception
import System.Directory
import System.IO
main :: IO ()
main = do
  writeFile "h.txt" "hello"
  appendFile "h.txt" " world"
  readFile "h.txt" >>= putStrLn
  withFile "h.txt" ReadWriteMode (\h -> hSetFileSize h 3 >> hFileSize h >>= print)
  h <- openFile "h.txt" WriteMode
  again <- try (openFile "h.txt" ReadMode) :: IO (Either IOException Handle)
  putStrLn (either (const "locked") (const "opened twice") again)
  hClose h
  renameFile "h.txt" "i.txt"
  doesFileExist "i.txt" >>= print
  createDirectoryIfMissing True "d/e/f"
  removePathForcibly "d"
  doesPathExist "d" >>= print
  removeFile "i.txt"
HS
ghc -v0 a.hs -o a && ./a
runghc a.hs
rm -f a a.hs a.hi a.o
