#!/bin/sh
# needs: ocamlopt Rscript escript sbcl swipl guile
# by name: a third of a gigabyte to install
# Run-times with file layers of their own: objects saved and loaded, tables on disk, cores that start again.
cat >a.ml <<'ML'
let () = let o = open_out "o.txt" in output_string o "text"; close_out o;
  Sys.rename "o.txt" "p.txt"; let i = open_in "p.txt" in
  print_endline (input_line i); print_int (in_channel_length i); print_newline (); Sys.remove "p.txt"
ML
ocamlopt -o ao a.ml && ./ao
cat >a.R <<'R'
write.csv(data.frame(a=1:3), "r.csv"); print(read.csv("r.csv")); saveRDS(mtcars, "x.rds")
invisible(file.rename("x.rds", "y.rds")); print(dim(readRDS("y.rds"))); print(file.exists("x.rds"))
R
Rscript a.R
cat >a.escript <<'ERLANG'

main(_) ->
    {ok, T} = dets:open_file(t, [{file, "e.dets"}]), ok = dets:insert(T, {a, 1}),
    io:format("~p~n", [dets:lookup(T, a)]), ok = dets:close(T),
    io:format("~p~n", [filelib:wildcard("e.*")]).
ERLANG
escript a.escript
cat >a.lisp <<'LISP'
(with-open-file (s "l.txt" :direction :output) (format s "line~%"))
(rename-file "l.txt" "l2.txt")
(with-open-file (s "l2.txt") (print (read-line s)))
(save-lisp-and-die "sb.core")
LISP
sbcl --script a.lisp
sbcl --core sb.core --noinform --eval '(progn (print (* 6 7)) (exit))'
swipl -q -g "qsave_program('sw',[stand_alone(true),goal((print(again),nl,halt))]),halt" && ./sw
guile --no-auto-compile -c '(call-with-output-file "g" (lambda (p) (display "text" p))) (display (stat:size (stat "g")))'
rm -f a.* ao e.dets g l2.txt sb.core sw r.csv y.rds
