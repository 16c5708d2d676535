@echo off
rem What the plugin starts for its server and its hooks: `everkept ARGS`, as `run.cmd` does it.
setlocal
set "NoDefaultCurrentDirectoryInExePath=1"
set "program=%~dp0"
rem Git writes a link as a small file where the system lets it make none.
if not exist "%program%src\everkept\" set "program=%~dp0..\"
if not exist "%program%src\everkept\" goto absent
if "%program%"=="%~dp0" if not defined EVERKEPT_VENV if defined CLAUDE_PLUGIN_DATA set "EVERKEPT_VENV=%CLAUDE_PLUGIN_DATA%\venv"
call "%program%run.cmd" %*
exit /b %errorlevel%

:absent
if "%~1"=="hook" exit /b 0
echo everkept: this copy of the plugin holds no program, because git made no symbolic links 1>&2
echo   turn on developer mode in Windows and `git config --global core.symlinks true`, then install the plugin again 1>&2
exit /b 1
