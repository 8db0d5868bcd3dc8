#!/bin/sh
# needs: gpg gpg-agent gpgconf gpg-connect-agent
# An agent on a socket in the image: a key ring made, a file signed and read.
unset GPG_AGENT_INFO
umask 077
echo text >text
mkdir -m 700 gnupg
export GNUPGHOME=$PWD/gnupg
gpg --batch -q --passphrase '' --quick-gen-key 'a <a@b>' ed25519 sign never 2>/dev/null
gpg --batch -q --list-secret-keys --with-colons | cut -d : -f 1 | sort | uniq -c
gpg --batch -q --sign -o text.gpg text && gpg --batch -q -d text.gpg 2>/dev/null
gpg --batch -q --armor --export a@b | head -1
gpg --batch -q -c --passphrase x -o sym text && gpg --batch -q --passphrase x --pinentry-mode loopback -d sym
gpg-connect-agent 'getinfo socket_name' /bye | sed "s|$PWD|@|"
gpgconf --kill gpg-agent
for _ in $(seq 200); do [ -e gnupg/S.gpg-agent ] || break; sleep 0.02; done
ls gnupg/S.gpg-agent 2>&1
rm -rf gnupg text.gpg sym
