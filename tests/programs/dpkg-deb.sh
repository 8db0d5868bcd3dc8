#!/bin/bash
# needs: dpkg-deb ar tar
# A package built, listed, unpacked.
export SOURCE_DATE_EPOCH=1000000000
mkdir -p p/DEBIAN p/usr/bin p/etc
printf 'Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: tiny\n' >p/DEBIAN/control
printf '#!/bin/sh\necho ran\n' >p/usr/bin/tiny
chmod 755 p/usr/bin/tiny p/DEBIAN
seq 1000 >p/etc/n
ln -s n p/etc/s
echo /etc/n >p/DEBIAN/conffiles
find p -exec touch -h -d @1000000000 {} +
chmod -R g-ws,o-w p
dpkg-deb --root-owner-group -Zgzip -b p t.deb
echo "exit $?"
cksum t.deb
dpkg-deb -I t.deb
dpkg-deb -c t.deb
dpkg-deb -x t.deb x
dpkg-deb -e t.deb x/c
diff -r --no-dereference p/etc x/etc && echo same
x/usr/bin/tiny
ls x/c
ar t t.deb
dpkg-deb -f t.deb Package
dpkg-deb --fsys-tarfile t.deb | tar -t | sort
head -c 200 t.deb >bad.deb
dpkg-deb -c bad.deb 2>/dev/null
echo "exit $?"
chmod -R u+w .
