@echo off
rem Run `everkept ARGS` in a private virtual environment, created on first use.
setlocal
rem Without this, cmd looks for programs in the working folder first.
set "NoDefaultCurrentDirectoryInExePath=1"
set "needs=run"
call "%~dp0tools\environment.cmd" %1
if "%errorlevel% %~1"=="3 hook" exit /b 0
if errorlevel 1 exit /b 1
rem What a client should start: unlike the environment's own script, this one repairs itself.
set "EVERKEPT_LAUNCHER=%~dp0run.cmd"
if "%~1"=="" (set "command=serve") else set "command="
rem Isolated: Python would run code of the working folder that PYTHON variables name.
"%venv%\Scripts\python.exe" -I -m everkept %command% %*
