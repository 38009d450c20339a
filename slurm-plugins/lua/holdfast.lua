-- Holdfast's defaults for jobs, for a site's own job_submit.lua. See docs/slurm-plugins.md.
--
-- Nothing in here can refuse a job or raise an error: what goes wrong is logged, and the job is submitted as it came.
-- Plain Lua 5.1 to 5.4; no global is set.

local M = {}

M.word = "holdfast" -- what the controller looks for in a job's comment

local function words(text)
	local found = {}
	for word in string.gmatch(text or "", "[^%s,]+") do
		found[word] = true
	end
	return found
end

-- Whether the request is for a listed partition. It names none where the default one is meant.
local function in_partition(job, part_list, listed)
	local asked = job.partition
	if asked and asked ~= "" then
		for name in pairs(words(asked)) do
			if listed[name] then
				return true
			end
		end
		return false
	end
	for name, part in pairs(part_list or {}) do
		if listed[name] and part.flag_default == 1 then
			return true
		end
	end
	return false
end

-- sbatch --holdfast, or its alias: what the plug-in's options look like on their way to the node.
local function asked_by_option(job)
	local environment = job.spank_job_env
	if type(environment) ~= "table" then
		return false
	end
	for _, entry in pairs(environment) do
		local option, value = string.match(entry, "^_SLURM_SPANK_OPTION_holdfast_([%w_]+)=(.*)$")
		if (option == "holdfast" or option == "auto_resume") and value ~= "off" and value ~= "0" then
			return true
		end
	end
	return false
end

local function apply(slurm, job, part_list, options)
	local said = words(job.comment)[M.word] or false
	local asked = asked_by_option(job)
	local listed = {}
	for _, name in ipairs(options.partitions or {}) do
		listed[name] = true
	end
	if not (said or asked or in_partition(job, part_list, listed)) then
		return
	end
	if asked and not said then
		local comment = job.comment
		job.comment = (comment and comment ~= "") and (comment .. "," .. M.word) or M.word
	end
	-- The user's --requeue and --no-requeue stay; only what was left open gets a default.
	if job.script and job.requeue == slurm.NO_VAL16 then
		job.requeue = 1
	end
end

-- Call from slurm_job_submit. options.partitions: names of partitions whose batch jobs are to be requeued by default.
-- Returns true when all went well; the caller need not look.
function M.job_submit(slurm, job, part_list, options)
	local well, why = pcall(apply, slurm, job, part_list, options or {})
	if not well then
		pcall(function()
			slurm.log_error("holdfast: no defaults for this job: %s", tostring(why))
		end)
	end
	return well
end

return M
