@echo off
rem `run ARGS` is `everkept ARGS`, in an environment of its own that the first start makes.
setlocal
set "needs=run"
call "%~dp0tools\environment.cmd" %1
if "%errorlevel% %~1"=="3 hook" exit /b 0
if errorlevel 1 exit /b 1
rem What a client should start: unlike the environment's own script, this one repairs itself.
set "EVERKEPT_LAUNCHER=%~dp0run.cmd"
if "%~1"=="" (set "command=serve") else set "command="
"%venv%\Scripts\everkept.exe" %command% %*
