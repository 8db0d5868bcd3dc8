#!/bin/bash
# Every kind of redirection and here-document that bash knows, on commands, groups, functions and loops.
both() { echo "out $1"; echo "err $1" >&2; }
both 1 >f1 2>&1; cat f1; both 2 2>&1 >f2 | sed 's/^/piped /'; cat f2; both 3 &>f3; both 4 &>>f3; cat f3; both 5 |& sort; both 6 >&f6; cat f6; both 7 2>f7 >&2; cat f7
both 8 >f8 2>/dev/null; both 9 >>f8 2>>f8; cat f8; both a 3>&1 1>&2 2>&3 2>swapped | sed 's/^/swapped /'; cat swapped; >empty; wc -c <empty; : >>empty; <f8 >copied cat; cmp f8 copied; cat 0<f8 1>copied; 2>named both b; cat named
exec {n}>numbered; echo "by variable $((n >= 10))" >&"$n"; exec {n}>&-; cat numbered; (echo x >&"$n") 2>/dev/null || echo closed; exec {r}<f8 {w}>>f8; read -r -u "$r" l; echo "$l"; echo appended >&"$w"; exec {r}<&- {w}>&-; tail -1 f8
exec 5>moved 6>&5-; echo six >&6; (echo five >&5) 2>/dev/null || echo 5 is closed; exec 7<moved 8<&7-; exec 6>&-; read -r l <&8; echo "$l"; (read -r l <&7) 2>/dev/null || echo 7 is closed; exec 8<&-
exec 3<>both; echo one >&3; echo two >&3; read -r l <&3 || echo at the end; exec 4<both; read -r l <&4; echo "$l"; printf ONE >&3; exec 3<>both; printf ONE >&3; read -r l <&3; echo "rest '$l'"; read -r l <&3; echo "$l"; cat both; exec 3>&- 4<&-
exec 9>&1 >whole; echo into the file; ls none 2>&1; (echo a child too); exec 1>&9 9>&-; cat whole; exec 9<&0 <f3; read -r l; echo "$l"; head -1; exec 0<&9 9<&-
(exec <&-; read -r l || echo no input); (exec >&-; echo x) 2>/dev/null || echo no output; (exec 2>&-; ls none) || echo "quiet $?"; cat <&- 2>/dev/null || echo cat fails; (exec <&- >&- 2>&-; exec >lowest; echo "the lowest numbers are free") 2>/dev/null; cat lowest
f() { cat; echo from f; } <f8 >in-function; f; cat in-function; for i in 1 2 3; do echo $i; read -r l; echo "$l"; done <f3 >looped; cat looped; { read -r a; read -r b; } <f3; echo "$a $b"; if true; then echo in if; fi >iffed; cat iffed; case x in x) echo in case ;; esac >cased; cat cased; while read -r x <&3 && read -r y <&4; do echo "$x+$y"; done 3<f1 4<f6; until ! read -r l; do echo "until $l"; done <f1; ((n = 3)) 2>f9; [[ -s f8 ]] >f9; (cd tmp && echo sub >../subbed); cat subbed; coproc sed -u s/^/co-/ ; echo x >&"${COPROC[1]}"; read -r l <&"${COPROC[0]}"; echo "$l"; exec {COPROC[1]}>&-; wait
name=v; cat <<A; cat <<'B'; cat <<-C; cat <<"D E"; cat <<\F
$name $(echo command) `echo old` $((2 * 3)) \$name \\ "quoted" 'single'
joined \
line
A
$name $(echo command) \
B
	tab $name
		tabs
	C
$name "D E"
D E
$name \
F
cat <<A - <<B 3<<C /dev/fd/3
first is forgotten
A
second
B
third
C
cat 4<<A 5<<B <&5; cat <<A | tr a-z A-Z >upper
four
A
five
B
through a pipe
A
cat upper; l=$(cat <<A
in a $(cat <<B
nested
B
) command
A
); echo "$l"; while read -r l; do cat <<B; done <<A
line $l
B
1
2
A
big=$(seq 30000); cksum <<<"$big"; cat <<A >here-big; wc -l here-big; sort -rn <<<"$big" | head -1; cat <<<'' | od -c; read -r a b <<<"two words"; echo "$b $a"; g() { cat; }; g <<A; g <<<string; eval 'cat <<X
evaluated
X'
$big
A
in a function
A
cat <(echo process) <(echo substitution); sort -m <(seq 1 2 9) <(seq 2 2 8) | tr '\n' ' '; echo; exec 6< <(echo kept open); read -r l <&6; echo "$l"; exec 6<&-; cat /dev/fd/6 6<f1; cat /dev/stdin <f2; echo x 2>to-stderr >/dev/stderr; cat to-stderr; echo y 7>by-number >/dev/fd/7; cat by-number /proc/self/fd/8 8<f2; source /dev/stdin <<<'echo sourced'; . <(echo echo sourced again)
set -C; echo no >f1; echo "exit $?"; echo yes >|f1; echo more >>f1; echo both &>f1; echo "exit $?"; exec 3<>f1; echo opened >&3; exec 3>&-; : >fresh && echo fresh; set +C; cat f1; echo x >none/x; echo "exit $?"; echo x >tmp; echo "exit $?"; cat <none; echo "exit $?"; : <none || echo a builtin goes on; (exec <none; echo not reached); echo "exit $?"; ln -s f2 link; echo through >link; cat f2; ln -s nowhere dangling; echo made >dangling; cat nowhere; chmod 400 f2; cat <f2; i=0; echo x >"name with $((i += 1)) space"; echo $i; ls name*; v='two words'; echo x >"$v"; (echo x >$v) 2>/dev/null; echo "exit $?"; echo g >glob*; ls glob*; PATH=$PATH echo env >enved; cat enved; ! echo negated >neg; cat neg; TIMEFORMAT=timed; { time true; } 2>timed; cat timed; >both cat f8 | cat >>both; tail -1 both
