# Mounts of a sandbox's own inside the mount, made under another name of it before the program starts: that sees them, and
# nobody else does.
# ways: both kernel
# needs: bwrap
mkdir -p "a b" data/in bound
echo hidden >"a b/f"
echo hidden >bound/f
echo data >data/f
bwrap --bind / / --tmpfs "$PWD/a b" --bind "$PWD/data" "$PWD/bound" sh -c '
    ls "a b"; echo new >"a b/new"; cat "a b/new"; cat bound/f; cd bound && ls && mkdir made && cd in && ls ../..; exec ls -A ..'
ls "a b" bound data
cat bound/f
echo more >bound/g && mv bound/g "a b/g" && rm -r bound && ls
