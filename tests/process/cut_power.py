"""Cuts the power of a mounted ext4 file system.

Asks the file system to shut down without flushing its journal: data that was not synced is gone,
and every later write fails, as if the plug had been pulled. The file system has to be unmounted
and mounted again to read the rest. Usage: cut_power.py MOUNT_POINT. It prints a letter when it
is ready, and cuts when its input ends, so that the caller decides the moment.
"""
import fcntl
import os
import struct
import sys

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_LOG_FLUSH = 2

directory = os.open(sys.argv[1], os.O_RDONLY)
request = struct.pack("I", WITHOUT_LOG_FLUSH)
sys.stdout.write("r")
sys.stdout.flush()
sys.stdin.read()
fcntl.ioctl(directory, EXT4_IOC_SHUTDOWN, request)
