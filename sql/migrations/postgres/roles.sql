-- Run at the end of every `migrate up`, and safe to run again: a server whose
-- administrator made the roles later gets its grants with the next one.
--
-- reconcile_ro reads the views. reconcile_intake hands in failures of other tasks and
-- does nothing else. Both are NOLOGIN: give them to the users that need them.

DO $$
DECLARE
    r text;
    v text;
BEGIN
    FOREACH r IN ARRAY ARRAY['reconcile_ro', 'reconcile_intake'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', r);
                EXECUTE format('COMMENT ON ROLE %I IS %L', r, CASE r
                    WHEN 'reconcile_ro' THEN 'Reads the views of reconcile.'
                    ELSE 'Inserts into reconcile.task_failures and does nothing else.' END);
            EXCEPTION
                -- Roles belong to the whole server: another database may have made it just now.
                WHEN duplicate_object OR unique_violation THEN NULL;
                WHEN insufficient_privilege THEN
                    RAISE WARNING 'role % is not there and this user may not create it; create it (NOLOGIN) and run migrate up again', r;
            END;
        END IF;
    END LOOP;

    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'reconcile_ro') THEN
        GRANT USAGE ON SCHEMA reconcile TO reconcile_ro;
        GRANT EXECUTE ON FUNCTION reconcile.now() TO reconcile_ro;
        FOR v IN SELECT relname FROM pg_class WHERE relnamespace = 'reconcile'::regnamespace AND relkind = 'v' LOOP
            EXECUTE format('GRANT SELECT ON reconcile.%I TO reconcile_ro', v);
        END LOOP;
    END IF;

    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'reconcile_intake') THEN
        GRANT USAGE ON SCHEMA reconcile TO reconcile_intake;
        GRANT EXECUTE ON FUNCTION reconcile.now() TO reconcile_intake;
        -- By column: who hands in may not say that it is handled.
        GRANT INSERT (kind, target, error) ON reconcile.task_failures TO reconcile_intake;
    END IF;
END
$$;
