#!/bin/sh
# needs: mcs mono
# The compiler and the run-time: files copied, appended to, moved, mapped, locked against another handle.
cat >a.cs <<'CS'
using System; using System.IO; using System.IO.MemoryMappedFiles;
class A {
    static void Main() {
        File.WriteAllText("m.txt", "text\n");
        File.Copy("m.txt", "copy.txt", true);
        using (var f = new FileStream("copy.txt", FileMode.Append)) f.WriteByte(65);
        Console.WriteLine(File.ReadAllText("copy.txt") + " " + new FileInfo("copy.txt").Length);
        File.Move("copy.txt", "moved.txt");
        Console.WriteLine(File.Exists("moved.txt"));
        using (var map = MemoryMappedFile.CreateFromFile("moved.txt"))
        using (var view = map.CreateViewAccessor()) { view.Write(0, (byte)66); Console.WriteLine(view.ReadByte(0)); }
        Console.WriteLine(File.ReadAllText("moved.txt"));
        using (new FileStream("moved.txt", FileMode.Open, FileAccess.Write, FileShare.None))
            try { File.OpenWrite("moved.txt"); Console.WriteLine("opened twice"); }
            catch (IOException) { Console.WriteLine("locked"); }
        Directory.CreateDirectory("d/e"); Directory.Delete("d", true);
        Console.WriteLine(Directory.Exists("d"));
    }
}
CS
mcs a.cs && mono a.exe
rm -f a.cs a.exe m.txt moved.txt
