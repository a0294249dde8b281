#!/bin/sh
# Keys of the machine's own: those of the image would be everybody's.
set -e
rm -f /etc/ssh/ssh_host*key*
ssh-keygen -A -v
