@rem Called by run.cmd and test.cmd with `needs` (run or dev) set: leaves in `venv` an environment
@rem that holds what is needed. For a hook, which an assistant waits for, nothing is made or looked
@rem into: 3 says that there is none.
if defined EVERKEPT_VENV (set "venv=%EVERKEPT_VENV%") else set "venv=%~dp0..\.venv"
for %%v in ("%venv%") do set "venv=%%~fv"
if "%~1"=="hook" if exist "%venv%\.everkept-ready" (exit /b 0) else exit /b 3
set "python="
if defined EVERKEPT_PYTHON set "python="%EVERKEPT_PYTHON%""
for %%p in ("py -3" python3 python) do if not defined python %%~p -I -c "import sys; sys.exit(sys.version_info < (3, 11))" >nul 2>nul && set "python=%%~p"
if not defined python echo everkept: needs Python 3.11 or newer: winget install Python.Python.3.13 1>&2 & exit /b 1
%python% -E -s "%~dp0bootstrap.py" %needs% "%venv%" <nul 1>&2
