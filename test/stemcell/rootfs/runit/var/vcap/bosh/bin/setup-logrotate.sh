#!/bin/bash
# Logs are rotated four times an hour. The agent runs this, so that not all machines do it at once.
first=$((${1:-$RANDOM} % 15))
echo "$first,$((first + 15)),$((first + 30)),$((first + 45)) * * * * root /usr/bin/logrotate-cron" >/etc/cron.d/logrotate
touch /etc/cron.d
