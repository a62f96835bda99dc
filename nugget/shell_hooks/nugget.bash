# Records this shell for Nugget: each command with exit code, duration and folder, as two lines of JSON in
#   ${AISH_LOG_DIR:-~/.local/share/aish/logs}/<session>/events.jsonl
# Output is recorded only of what you run as `logged COMMAND...`. A command that begins with a space is not recorded,
# nor one that fits a pattern of NUGGET_SHELL_IGNORE (patterns with `:` between). `NUGGET_SHELL_OFF=1` pauses it.
# No process is started for a command but one subshell that reads the history.

if [[ $- == *i* && -z ${__nugget_dir-} ]]; then
    __nugget_ignore_default='pass *:gpg *:vault *:ssh-keygen *:*--password*:*passwd*:*PASSWORD=*:*_TOKEN=*:*_SECRET=*:*_KEY=*'

    __nugget_now() { # milliseconds since the epoch, in REPLY
        if [[ -n ${EPOCHREALTIME-} ]]; then
            local micros=${EPOCHREALTIME/[^0-9]/}
            REPLY=${micros%???}
        else
            REPLY=$(date +%s)000
        fi
    }

    __nugget_now
    __nugget_session="bash-$(date +%Y%m%d-%H%M%S)-$$"
    __nugget_dir="${AISH_LOG_DIR:-$HOME/.local/share/aish/logs}/$__nugget_session"
    __nugget_folder=$PWD __nugget_began= __nugget_last= __nugget_streams=

    __nugget_json() { # a text as the inside of a JSON string, in REPLY
        local text=$1 char code
        text=${text//\\/\\\\}
        text=${text//\"/\\\"}
        text=${text//$'\n'/\\n}
        text=${text//$'\t'/\\t}
        text=${text//$'\r'/\\r}
        if [[ $text == *[[:cntrl:]]* ]]; then
            for code in 1 2 3 4 5 6 7 8 11 12 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31; do
                printf -v char '\\x%x' "$code"
                printf -v char '%b' "$char"
                [[ $text == *"$char"* ]] || continue
                printf -v code '\\u%04x' "$code"
                text=${text//"$char"/"$code"}
            done
        fi
        REPLY=$text
    }

    __nugget_is_ignored() {
        local pattern patterns=${NUGGET_SHELL_IGNORE-$__nugget_ignore_default}
        [[ $1 == [[:space:]]* || -n ${NUGGET_SHELL_OFF-} ]] && return 0
        while [[ -n $patterns ]]; do
            pattern=${patterns%%:*}
            patterns=${patterns#"$pattern"}
            patterns=${patterns#:}
            [[ -n $pattern && $1 == $pattern ]] && return 0
        done
        return 1
    }

    # `ignoredups` would hide a command that is run again. Bash keeps it instead, and the entry is taken out here.
    __nugget_keep_repeated() {
        case ":${HISTCONTROL-}:" in
            *:ignoreboth:* | *:ignoredups:*)
                __nugget_dedupe=1
                local parts=":$HISTCONTROL:"
                parts=${parts//:ignoreboth:/:ignorespace:}
                parts=${parts//:ignoredups:/:}
                parts=${parts#:}
                HISTCONTROL=${parts%:}
                ;;
        esac
    }

    __nugget_precmd() {
        local status=$? entry number command
        __nugget_keep_repeated
        entry=$(HISTTIMEFORMAT='' history 1)
        entry=${entry#"${entry%%[![:space:]]*}"}
        number=${entry%%[!0-9]*}
        command=${entry#"$number"}
        command=${command#[* ]}
        command=${command#' '}
        if [[ -n $__nugget_began && -n $number && $number != "$__nugget_last" ]]; then
            if [[ -n ${__nugget_dedupe-} && $command == "${__nugget_command-}" ]]; then
                history -d "$number" 2>/dev/null && number=$((number - 1))
            fi
            __nugget_command=$command
            if ! __nugget_is_ignored "$command"; then
                __nugget_write "$command" "$status"
            fi
        fi
        __nugget_last=$number __nugget_folder=$PWD __nugget_began= __nugget_streams=
        return "$status"
    }

    __nugget_write() {
        local text folder now
        if [[ ! -d $__nugget_dir ]]; then
            (umask 077 && mkdir -p "$__nugget_dir" && : >>"$__nugget_dir/events.jsonl") 2>/dev/null || return 0
        fi
        __nugget_json "${1#logged }"
        text=$REPLY
        __nugget_json "$__nugget_folder"
        folder=$REPLY
        __nugget_now
        now=$REPLY
        printf '{"ts_ms":%s,"session_id":"%s","kind":"command.start","data":{"cmd":"%s","cwd":"%s"}}\n{"ts_ms":%s,"session_id":"%s","kind":"command.end","data":{"exit":%s,"duration_ms":%s%s}}\n' \
            "$__nugget_began" "$__nugget_session" "$text" "$folder" \
            "$now" "$__nugget_session" "$2" "$((now - __nugget_began))" "$__nugget_streams" \
            2>/dev/null >>"$__nugget_dir/events.jsonl"
    }

    __nugget_size() {
        REPLY=0
        [[ -f $1 ]] && REPLY=$(($(wc -c <"$1")))
    }

    # logged COMMAND...: run a command and keep a copy of what it prints.
    logged() {
        local out_file="$__nugget_dir/stdout.log" err_file="$__nugget_dir/stderr.log" out err out_from err_from status tries
        if [[ -n ${NUGGET_SHELL_OFF-} ]] || ! (umask 077 && mkdir -p "$__nugget_dir" && : >>"$out_file" >>"$err_file"); then
            "$@"
            return
        fi
        __nugget_size "$out_file"
        out_from=$REPLY
        __nugget_size "$err_file"
        err_from=$REPLY
        exec {out}> >(exec tee -a "$out_file")
        local out_pid=$!
        exec {err}> >(exec tee -a "$err_file" >&2)
        local err_pid=$!
        "$@" >&"$out" 2>&"$err" {out}>&- {err}>&-
        status=$?
        exec {out}>&- {err}>&-
        for ((tries = 0; tries < 100; tries++)); do
            kill -0 "$out_pid" 2>/dev/null || kill -0 "$err_pid" 2>/dev/null || break
            sleep 0.01
        done
        __nugget_size "$out_file"
        __nugget_streams=",\"streams\":{\"stdout\":[$out_from,$REPLY]"
        __nugget_size "$err_file"
        __nugget_streams+=",\"stderr\":[$err_from,$REPLY]}"
        return "$status"
    }

    # PS0 is expanded when a command has been read and before it runs; the arithmetic notes the time and shows nothing.
    if [[ -n ${EPOCHREALTIME-} ]]; then
        PS0=${PS0-}'${__nugget_dir:0:$((__nugget_began=${EPOCHREALTIME/[^0-9]/}/1000,0))}'
    else
        PS0=${PS0-}'${__nugget_dir:0:$((__nugget_began=$(date +%s)000,0))}'
    fi
    if [[ $(declare -p PROMPT_COMMAND 2>/dev/null) == 'declare -a'* ]]; then
        PROMPT_COMMAND=(__nugget_precmd "${PROMPT_COMMAND[@]}")
    else
        PROMPT_COMMAND="__nugget_precmd${PROMPT_COMMAND:+; $PROMPT_COMMAND}"
    fi
fi
