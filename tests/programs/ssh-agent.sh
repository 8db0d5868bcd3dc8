#!/bin/sh
# needs: ssh-agent ssh-add ssh-keygen
# way: kernel
# An agent on a socket in the image (set-group-id: by the kernel mount), a key given to it and used.
unset SSH_AUTH_SOCK
umask 077
ssh-keygen -q -t ed25519 -N '' -C c -f id
eval "$(ssh-agent -a "$PWD/agent")" >/dev/null
ssh-add -q id
ssh-add -l | cut -d ' ' -f 1,3,4
echo text >text
ssh-keygen -q -Y sign -f id.pub -n file text 2>/dev/null
echo "me $(cat id.pub)" >signers
ssh-keygen -q -Y verify -f signers -I me -n file -s text.sig <text
echo "verified $?"
ssh-add -q -D 2>/dev/null
ssh-add -l
ssh-agent -k >/dev/null
for _ in $(seq 200); do [ -e agent ] || break; sleep 0.02; done
ls agent 2>&1
rm -f id id.pub signers text.sig
