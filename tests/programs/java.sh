#!/bin/sh
# needs: java javac jar
# ignore: \.jar$|\.class$
# A class compiled and run, out of a directory and out of a jar: channels, maps, locks, tree walks.
export JAVA_TOOL_OPTIONS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xmx64m -Xshare:auto'
cat >T.java <<'P'
import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*; import java.nio.file.attribute.*; import java.util.*;
public class T {
    static void sh(Object... a) { System.out.println(Arrays.toString(a)); }
    interface Act { void run() throws Exception; }
    static String why(Act a) { try { a.run(); return "none"; } catch (Exception e) { return e.getClass().getSimpleName(); } }
    public static void main(String[] args) throws Exception {
        Path d = Path.of("d"), f = d.resolve("f"); Files.createDirectories(d.resolve("e")); Files.writeString(f, "hello\n"); Files.writeString(f, "more\n", StandardOpenOption.APPEND); sh(Files.readAllLines(f), Files.size(f));
        sh(why(() -> Files.readString(Path.of("no"))), why(() -> Files.createDirectory(d)), why(() -> Files.delete(d)), why(() -> Files.newDirectoryStream(f)), why(() -> new FileInputStream("d").read()));
        Files.createSymbolicLink(d.resolve("s"), Path.of("f")); Files.createLink(d.resolve("h"), f); sh(Files.readSymbolicLink(d.resolve("s")), Files.getAttribute(f, "unix:nlink"), Files.isSameFile(f, d.resolve("h"))); Files.setPosixFilePermissions(f, PosixFilePermissions.fromString("rw-r-----")); Files.setLastModifiedTime(f, FileTime.fromMillis(1000000000123L)); sh(Files.getPosixFilePermissions(f).size(), Files.getLastModifiedTime(f));
        try (FileChannel c = FileChannel.open(Path.of("m"), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) { MappedByteBuffer m = c.map(FileChannel.MapMode.READ_WRITE, 0, 8192); m.put(5000, (byte) 42); m.force(); ByteBuffer b = ByteBuffer.allocate(1); c.read(b, 5000); sh(b.get(0), c.size()); try (FileLock l = c.lock(0, 10, false)) { sh(l.isValid()); } c.write(ByteBuffer.wrap("tail".getBytes()), 8192); c.truncate(8194); sh(c.size(), c.transferTo(0, 100, FileChannel.open(Path.of("t"), StandardOpenOption.CREATE, StandardOpenOption.WRITE))); }
        try (RandomAccessFile r = new RandomAccessFile("r", "rw")) { r.seek(100); r.writeInt(7); r.seek(100); sh(r.readInt(), r.length()); r.setLength(50); sh(r.length()); }
        try (BufferedWriter w = new BufferedWriter(new FileWriter("w"))) { for (int i = 0; i < 5000; i++) w.write(i + "\n"); } try (BufferedReader r = new BufferedReader(new FileReader("w"))) { sh(r.lines().mapToInt(Integer::parseInt).sum()); }
        try (var s = Files.walk(d)) { sh(s.map(Path::toString).sorted().toList()); } Files.move(d.resolve("h"), Path.of("moved")); Files.copy(Path.of("moved"), Path.of("copied"), StandardCopyOption.COPY_ATTRIBUTES); sh(new File("copied").lastModified(), new File(".").getCanonicalPath().equals(System.getProperty("user.dir")), new File("d").list().length, new File("none").delete(), new File("moved").renameTo(new File("moved2"))); Path t = Files.createTempFile("a", "b"); Files.delete(t);
        Process p = new ProcessBuilder("sh", "-c", "cat f; echo err >&2").directory(new File("d")).redirectErrorStream(true).redirectOutput(new File("out")).start(); sh(p.waitFor(), Files.readString(Path.of("out"))); Thread[] ts = new Thread[4]; for (int i = 0; i < 4; i++) { int n = i; ts[i] = new Thread(() -> { try { for (int j = 0; j < 25; j++) Files.writeString(Path.of("th" + n + "-" + j), "x"); } catch (IOException e) { sh(e); } }); ts[i].start(); } for (Thread x : ts) x.join(); sh(new File(".").list((q, n) -> n.startsWith("th")).length);
    }
}
P
exec 2>&1
javac -J-XX:TieredStopAtLevel=1 T.java | grep -v JAVA_TOOL
java T | grep -v JAVA_TOOL
ls T*.class
rm -rf d m r t copied moved2
jar cfe t.jar T T*.class >/dev/null
jar tf t.jar | sort | tail -3
java -jar t.jar | tail -2
