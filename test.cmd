@echo off
rem Runs every check; with arguments, pytest alone and with these.
setlocal
set "NoDefaultCurrentDirectoryInExePath=1"
set "needs=dev"
call "%~dp0tools\environment.cmd" || exit /b 1
"%venv%\Scripts\python.exe" "%~dp0tools\check.py" %*
