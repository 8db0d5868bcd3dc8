#!/bin/sh
# needs: dpkg dpkg-deb
# root: yes
# ignore: ^\./r/var/lib/dpkg/(status|status-old)$|\.deb$|/r/log
# Packages installed, upgraded, diverted, verified, removed: dpkg's own fsync, rename and link of each file.
export SOURCE_DATE_EPOCH=1700000000
package() { # NAME VERSION
    mkdir -p p/DEBIAN p/usr/bin p/usr/share/"$1" p/etc
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: me <me@here>\nDescription: test\n' "$1" "$2" >p/DEBIAN/control
    echo "/etc/$1.conf" >p/DEBIAN/conffiles
    echo "setting of $2" >"p/etc/$1.conf"
    for i in $(seq 60); do echo "$1 $2 $i" >"p/usr/share/$1/file$i"; done
    ln -s "../share/$1/file1" "p/usr/bin/$1"
    ln "p/usr/share/$1/file2" "p/usr/share/$1/twin"
    [ "$2" = 1 ] && echo old >"p/usr/share/$1/goes" || echo new >"p/usr/share/$1/comes"
    dpkg-deb -b --root-owner-group p "$1_$2.deb" >/dev/null
    rm -r p
}
for name in one two; do package $name 1 && package $name 2; done
mkdir -p r/var/lib/dpkg/updates r/var/lib/dpkg/info r/var/lib/dpkg/triggers
: >r/var/lib/dpkg/status
admin() { dpkg --root="$PWD/r" --log="$PWD/r/log" --force-depends --force-confold --force-script-chrootless "$@" 2>&1; }
admin -i one_1.deb two_1.deb
echo mine >r/etc/one.conf
dpkg-divert --root="$PWD/r" --local --rename --divert /usr/share/two/moved --add /usr/share/two/file7
admin -i one_2.deb two_2.deb
admin --verify
cat r/etc/one.conf r/etc/two.conf r/usr/share/two/moved r/usr/share/two/file7
admin -L one | sort | head -5
admin --unpack one_1.deb
admin --configure -a
admin -r two
admin -P two
admin -l one two | tail -2
find r/usr -links +1 -type f | sort
rm -r r/log
