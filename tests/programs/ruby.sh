#!/bin/sh
# needs: ruby
# Files, directories, locks, temporary files, a store in one file, processes.
cat >t.rb <<'R'
require 'fileutils'; require 'tempfile'; require 'tmpdir'; require 'pstore'; require 'pathname'; require 'find'; require 'socket'
File.write('a', "one\ntwo\n"); File.open('a', 'a') { |f| f.flock(File::LOCK_EX); f << "three\n" }
puts File.readlines('a', chomp: true).inspect, File.size('a'), IO.copy_stream('a', 'b'), FileUtils.identical?('a', 'b')
FileUtils.mkdir_p('d/e/f'); FileUtils.cp_r('d', 'g'); FileUtils.touch('g/e/x'); FileUtils.mv('g/e/x', 'd/y'); FileUtils.ln_s('d/y', 'l')
puts Dir.glob('**/*').sort.inspect, File.readlink('l'), File.realpath('l') == File.realpath('d/y'), Find.find('d').to_a.sort.inspect
Tempfile.create('t') { |f| f << 'x' * 100_000; f.flush; puts File.size(f.path), File.stat(f.path).mode.to_s(8) }
t = Tempfile.new('u'); t.unlink; t << 'gone'; t.rewind; puts t.read; t.close
Dir.mktmpdir { |d| Dir.chdir(d) { File.write('in', 'x'); puts Dir.children('.').inspect } }
store = PStore.new('store'); store.transaction { store[:n] = [1, 2, { 'k' => :v }] }; puts PStore.new('store').transaction(true) { |s| s = store[:n]; s.inspect }
begin; store.transaction { store[:n] = nil; store.abort }; end; puts store.transaction(true) { store[:n].inspect }
puts Pathname('d').join('..', 'a').cleanpath, Pathname('d/e').parent.entries.map(&:to_s).sort.inspect
File.open('r', File::RDWR | File::CREAT) { |f| f.pwrite('0123456789', 0); puts f.pread(3, 4); f.truncate(5); f.seek(0, IO::SEEK_END); puts f.pos }
pid = fork { File.open('r', 'a') { |f| f << 'child' }; exit!(3) }; Process.wait(pid); puts $?.exitstatus, File.read('r')
puts `cat r | tr a-z A-Z`, IO.popen(%w[cat a]).read, system('test -e none').inspect, spawn('echo out >s').then { |p| Process.wait(p); File.read('s') }
r = Thread.new { 200.times { |i| File.write("th-#{i}", i.to_s) } }; 200.times { |i| File.write("u-#{i}", i.to_s) }; r.join; puts Dir['{th,u}-*'].sum { |n| File.read(n).to_i }
UNIXServer.open('sock') { |s| c = Thread.new { UNIXSocket.open('sock') { |k| k.send_io(File.open('a')); k.read } }; p = s.accept; io = p.recv_io; puts io.read; p.close; c.join }
puts (begin; File.rename('none', 'x'); rescue SystemCallError => e; e.class; end), (begin; Dir.rmdir('d'); rescue SystemCallError => e; e.class; end)
File.chmod(0640, 'a'); File.utime(1, 2, 'a'); puts File.stat('a').mode.to_s(8), File.mtime('a').to_i; load './l.rb' if File.write('l.rb', 'puts __FILE__; $x = 1')
FileUtils.rm_rf(%w[d g]); FileUtils.rm(Dir['{th,u}-*']); puts Dir.children('.').sort.inspect
R
ruby t.rb
echo "exit $?"
ruby -e 'print DATA.read
__END__
x' 2>&1 | head -1
rm -f store
