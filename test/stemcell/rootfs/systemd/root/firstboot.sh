#!/bin/sh
# Generates the VM's own host keys, because all VMs would share those of the image.
set -e
rm -f /etc/ssh/ssh_host*key*
ssh-keygen -A -v
