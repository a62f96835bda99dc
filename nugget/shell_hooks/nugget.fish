# Records this shell for Nugget: each command with exit code, duration and folder, as two lines of JSON in
#   $AISH_LOG_DIR (or ~/.local/share/aish/logs)/<session>/events.jsonl
# Output is recorded only of what you run as `logged COMMAND...`. A command that begins with a space is not recorded,
# nor one that fits a pattern of NUGGET_SHELL_IGNORE (patterns with `:` between). `NUGGET_SHELL_OFF=1` pauses it.

if status is-interactive; and not set -q __nugget_dir
    set -g __nugget_session fish-(date +%Y%m%d-%H%M%S)-$fish_pid
    if set -q AISH_LOG_DIR; and test -n "$AISH_LOG_DIR"
        set -g __nugget_dir $AISH_LOG_DIR/$__nugget_session
    else
        set -g __nugget_dir $HOME/.local/share/aish/logs/$__nugget_session
    end
    set -g __nugget_ignore_default 'pass *:gpg *:vault *:ssh-keygen *:*--password*:*passwd*:*PASSWORD=*:*_TOKEN=*:*_SECRET=*:*_KEY=*'
    set -g __nugget_streams ''
    set -g __nugget_folder $PWD

    function __nugget_json
        set -l text (string replace -a '\\' '\\\\' -- $argv[1] | string replace -a '"' '\\"' | string replace -a \t '\\t' | string replace -a \r '\\r' | string collect)
        string replace -ra '[\x01-\x08\x0b\x0c\x0e-\x1f]' '' -- (string replace -a \n '\\n' -- $text | string collect) | string collect
    end

    function __nugget_is_ignored
        if string match -qr '^\s' -- $argv[1]; or test -n "$NUGGET_SHELL_OFF"
            return 0
        end
        set -l patterns $__nugget_ignore_default
        set -q NUGGET_SHELL_IGNORE; and set patterns $NUGGET_SHELL_IGNORE
        for pattern in (string split -n : -- $patterns)
            string match -q -- $pattern $argv[1]; and return 0
        end
        return 1
    end

    # Makes those of the session's files that are not there yet, for nobody else to read.
    function __nugget_has_files
        set -l made 0
        set -l mask (umask)
        umask 077
        for name in $argv
            test -f $__nugget_dir/$name; and continue
            mkdir -p -- $__nugget_dir 2>/dev/null; and touch -- $__nugget_dir/$name 2>/dev/null; or set made 1
        end
        umask $mask
        return $made
    end

    function __nugget_postexec --on-event fish_postexec
        set -l code $status
        set -l duration $CMD_DURATION
        set -l folder $__nugget_folder
        set -l streams $__nugget_streams
        set -g __nugget_folder $PWD
        set -g __nugget_streams ''
        if test -z "$argv[1]"; or __nugget_is_ignored "$argv[1]"; or not __nugget_has_files events.jsonl
            return
        end
        set -l now (date +%s%3N 2>/dev/null)
        string match -qr '^\d{13}$' -- $now; or set now (date +%s)000
        set -l text (__nugget_json (string replace -r '^logged ' '' -- "$argv[1]" | string collect))
        set folder (__nugget_json "$folder")
        printf '{"ts_ms":%s,"session_id":"%s","kind":"command.start","data":{"cmd":"%s","cwd":"%s"}}\n{"ts_ms":%s,"session_id":"%s","kind":"command.end","data":{"exit":%s,"duration_ms":%s%s}}\n' (math $now - $duration) $__nugget_session "$text" "$folder" $now $__nugget_session $code $duration "$streams" 2>/dev/null >>$__nugget_dir/events.jsonl
    end

    # logged COMMAND...: run a command and keep a copy of what it prints.
    function logged
        if test -n "$NUGGET_SHELL_OFF"; or not __nugget_has_files stdout.log stderr.log
            $argv
            return
        end
        set -l out_file $__nugget_dir/stdout.log
        set -l err_file $__nugget_dir/stderr.log
        set -l out_from (wc -c <$out_file | string trim)
        set -l err_from (wc -c <$err_file | string trim)
        set -l code 0
        begin
            $argv 2>&3 | tee -a -- $out_file
            set code $pipestatus[1]
        end 3>| tee -a -- $err_file >&2
        set -g __nugget_streams ',"streams":{"stdout":['$out_from','(wc -c <$out_file | string trim)'],"stderr":['$err_from','(wc -c <$err_file | string trim)']}'
        return $code
    end
end
