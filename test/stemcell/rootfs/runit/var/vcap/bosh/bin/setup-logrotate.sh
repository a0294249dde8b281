#!/bin/bash
# Rotates logs four times an hour. The agent runs this to choose different minutes on different VMs.
first=$((${1:-$RANDOM} % 15))
echo "$first,$((first + 15)),$((first + 30)),$((first + 45)) * * * * root /usr/bin/logrotate-cron" >/etc/cron.d/logrotate
touch /etc/cron.d
