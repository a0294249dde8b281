#!/bin/sh
# Generates the VM's host keys. Otherwise, all VMs would share the image's keys.
set -e
rm -f /etc/ssh/ssh_host*key*
ssh-keygen -A -v
